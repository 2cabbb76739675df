package redistest

import (
	"crypto/rand"
	"os"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// shared is the server of Any. It ends with the test binary.
var shared = sync.OnceValues(func() (*process, error) {
	return boot(randomPort, func(port int) []string { return nodeArgs(port, os.TempDir()) })
})

// Any returns a client of some Redis, for tests that need nothing special of it:
// the one at REDIS_URL, such as redis://localhost:6379/0, if that is set; else a
// redis-server that the tests of this binary share; else, where there is none and
// none is required, an embedded stand-in. Others use the same Redis: keep to keys
// that begin with [Prefix], and never flush. The client is closed when t ends.
func Any(t testing.TB) *redis.Client {
	t.Helper()
	if url := os.Getenv("REDIS_URL"); url != "" {
		return remote(t, url)
	}
	if err := missing(t); err != nil {
		t.Logf("redistest: %v; this test runs on miniredis, an embedded stand-in", err)
		return closed(t, redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()}))
	}
	server, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return closed(t, redis.NewClient(&redis.Options{Addr: server.addr()}))
}

// remote returns a client of the server at url, which never shows in an error: it
// may hold a password.
func remote(t testing.TB, url string) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal("redistest: REDIS_URL is not valid; it must be like redis://user:password@localhost:6379/0")
	}
	client := closed(t, redis.NewClient(opts))
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatalf("redistest: the server at REDIS_URL does not answer: %v", err)
	}
	return client
}

// Prefix returns a beginning for the keys of one test which no other test has, in
// this run or another.
func Prefix(t testing.TB) string { return t.Name() + ":" + rand.Text() + ":" }
