package redis

import (
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/internal/redisclient"
)

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
	if c, ok := client.(*redisclient.Namespaced); ok {
		panic(fmt.Sprintf("redis: WithNamespace %q: the client has the namespace %q already", name, c.Namespace))
	}
	if err := keyname.CheckNamespace(name); err != nil {
		panic("redis: WithNamespace: " + err.Error())
	}
	return &redisclient.Namespaced{UniversalClient: client, Namespace: name}
}
