// Package anyredis returns a Redis for tests that accept any: a real one, or miniredis. It is apart from
// package redistest so that only the tests which use it link miniredis.
package anyredis

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/redistest"
)

// Client returns the client of [redistest.Shared], or one of a miniredis if there is no server. Other
// tests use the same server, so use only keys that begin with [redistest.Prefix] and never flush. The
// client is closed when t ends.
func Client(t testing.TB) *redis.Client {
	t.Helper()
	client, missing := redistest.Shared(t)
	if client != nil {
		return client
	}
	t.Logf("redistest: %v; this test runs on miniredis instead", missing)
	client = redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return client
}
