package redistest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/testscale"
)

// prepareExamples prepares a test binary whose examples call [EmptyServer]: without redis-server they are not
// run, or the binary fails if redis-server is required. It must be called after flag.Parse.
func prepareExamples() {
	err := lookup()
	if err == nil {
		return
	}
	if required(err) {
		fmt.Fprintf(os.Stderr, "redistest: %v; install Redis 7.0 or newer: %s requires it\n", err, requirements)
		os.Exit(1)
	}
	skip := "^Example"
	if given := flag.Lookup("test.skip").Value.String(); given != "" {
		skip = given + "|" + skip
	}
	_ = flag.Set("test.skip", skip)
}

// EmptyServer returns the address of a redis-server without keys, for an example: examples run one after
// the other, when no test runs.
func EmptyServer() string {
	server, err := shared()
	if err == nil {
		err = server.admin.FlushAll(context.Background()).Err()
	}
	if err != nil {
		panic(err)
	}
	return server.addr()
}

// Main is the function TestMain of packages whose tests need Redis. More of them run at the same time than there are
// processors: most wait for leases to expire, or for servers. In the full tier, more of them compute.
func Main(m *testing.M) {
	flag.Parse()
	prepareExamples()
	_ = flag.Set("test.parallel", testscale.Pick("8", "4"))
	os.Exit(m.Run())
}

// StartEach returns the clients of one Redis server, and in the full tier of a Cluster, which takes two seconds to
// start.
func StartEach(t *testing.T) map[string]goredis.UniversalClient {
	clients := map[string]goredis.UniversalClient{"one node": Start(t).Client(t)}
	if testscale.Pick(false, true) {
		clients["cluster"] = StartCluster(t).Client(t)
	}
	return clients
}
