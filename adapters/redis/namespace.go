package redis

import (
	"fmt"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/keyname"
)

// defaultNamespace begins the names of applications that choose none.
const defaultNamespace = "penstock"

// A namespacedClient is a client whose keys and channels have a namespace.
type namespacedClient struct {
	goredis.UniversalClient

	namespace string
}

// WithNamespace returns a client with which everything in this package has a namespace of its own:
// applications, or copies of one such as production and staging, that share a server neither see nor
// affect each other. Without it, the namespace is "penstock". The names of all keys and channels begin
// with the namespace and a colon, so the rules of an ACL can have the patterns ~shop:* and &shop:*.
// Databases of one server are separate even with the same namespace: channels, which Redis shares
// between databases, and keys have "db" and the number in their names, except in database 0.
//
// All processes of an application must use the same namespace. A name has 1 to 64 letters, digits, dots,
// hyphens and underscores; WithNamespace panics otherwise, or if the client is nil or has a namespace
// already. Commands of the application itself are not changed.
func WithNamespace(client goredis.UniversalClient, name string) goredis.UniversalClient {
	if client == nil {
		panic("redis: WithNamespace needs a client")
	}
	if c, ok := client.(*namespacedClient); ok {
		panic(fmt.Sprintf("redis: WithNamespace %q: the client has the namespace %q already", name, c.namespace))
	}
	if err := keyname.CheckNamespace(name); err != nil {
		panic("redis: WithNamespace: " + err.Error())
	}
	return &namespacedClient{client, name}
}

// unwrap returns the client itself, with which the type of a client is known, and how the names of its
// keys and channels begin, without the colon. Without a namespace of its own, isDefault is true.
func unwrap(client goredis.UniversalClient) (plain goredis.UniversalClient, prefix string, isDefault bool) {
	prefix, isDefault = defaultNamespace, true
	if c, ok := client.(*namespacedClient); ok {
		client, prefix, isDefault = c.UniversalClient, c.namespace, false
	}
	if n := database(client); n > 0 {
		prefix += ":db" + strconv.Itoa(n)
	}
	return client, prefix, isDefault
}

// database returns the number of a client's database. A Cluster has only database 0.
func database(client goredis.UniversalClient) int {
	switch c := client.(type) {
	case interface{ Options() *goredis.Options }:
		return c.Options().DB
	case *goredis.Ring:
		return c.Options().DB
	default:
		return 0
	}
}
