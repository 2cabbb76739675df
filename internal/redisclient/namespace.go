package redisclient

import (
	"strconv"

	goredis "github.com/redis/go-redis/v9"
)

// defaultNamespace begins the names of applications that choose none.
const defaultNamespace = "penstock"

// A Namespaced is a client whose keys and channels have a namespace.
type Namespaced struct {
	goredis.UniversalClient

	Namespace string
}

// Unwrap returns the client itself, with which the type of a client is known, and how the names of its
// keys and channels begin, without the colon. Without a namespace of its own, isDefault is true.
func Unwrap(client goredis.UniversalClient) (plain goredis.UniversalClient, prefix string, isDefault bool) {
	prefix, isDefault = defaultNamespace, true
	if c, ok := client.(*Namespaced); ok {
		client, prefix, isDefault = c.UniversalClient, c.Namespace, false
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
