package redistest

import (
	"errors"
	"os"
	"testing"
)

// program is the program that every process runs.
const program = "redis-server"

// requireRedis skips or fails the test if redis-server cannot run.
func requireRedis(t testing.TB) {
	t.Helper()
	if err := lookupRequired(t); err != nil {
		t.Skipf("redistest: %v; install Redis 7.0 or newer to run this test", err)
	}
}

// lookupRequired returns why redis-server cannot run, or nil. It fails the test if redis-server is
// required, except on systems that this package does not support.
func lookupRequired(t testing.TB) error {
	t.Helper()
	err := lookup()
	required := os.Getenv("PENSTOCK_REQUIRE_REDIS") == "1" || os.Getenv("CI") == "true"
	if err != nil && required && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("redistest: %v; install Redis 7.0 or newer: PENSTOCK_REQUIRE_REDIS=1 or CI=true requires it", err)
	}
	return err
}
