package redisbudget_test

import (
	"flag"
	"os"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// TestMain runs more tests at the same time than there are processors: most of them wait for leases to
// expire, or for servers.
func TestMain(m *testing.M) {
	flag.Parse()
	redistest.Examples()
	_ = flag.Set("test.parallel", testscale.Pick("8", "4"))
	os.Exit(m.Run())
}

// redisAddr stands for the address of your Redis in the examples.
func redisAddr() string { return redistest.EmptyServer() }

// startServers returns the clients of one Redis server, and in the full tier of a Cluster, which takes
// two seconds to start.
func startServers(t *testing.T) map[string]goredis.UniversalClient {
	clients := map[string]goredis.UniversalClient{"one node": redistest.Start(t).Client(t)}
	if testscale.Pick(false, true) {
		clients["cluster"] = redistest.StartCluster(t).Client(t)
	}
	return clients
}
