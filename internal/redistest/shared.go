package redistest

import (
	"crypto/rand"
	"os"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/freeport"
)

// shared starts the server that [Shared] shares. It ends with the test binary.
var shared = sync.OnceValues(func() (*process, error) {
	return boot(freeport.Pick, nil, func(port int) []string { return nodeArgs(port, os.TempDir()) })
})

// Shared returns a client of the server at REDIS_URL, such as redis://localhost:6379/0, or else of a
// redis-server that all tests of this binary share. Other tests use the same server, so use only keys
// that begin with [Prefix] and never flush. The client is closed when t ends.
func Shared(t testing.TB) *redis.Client {
	t.Helper()
	if url := os.Getenv("REDIS_URL"); url != "" {
		return connect(t, url)
	}
	requireRedis(t)
	server, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return closeAfter(t, redis.NewClient(&redis.Options{Addr: server.addr()}))
}

// connect returns a client of the server at url. Its errors never contain url, which may contain
// a password.
func connect(t testing.TB, url string) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal("redistest: REDIS_URL is invalid; it must be like redis://user:password@localhost:6379/0")
	}
	client := closeAfter(t, redis.NewClient(opts))
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatalf("redistest: the server at REDIS_URL does not answer: %v", err)
	}
	return client
}

// Prefix returns a key prefix that is unique to this call. No other test and no other run has it.
func Prefix(t testing.TB) string { return t.Name() + ":" + rand.Text() + ":" }
