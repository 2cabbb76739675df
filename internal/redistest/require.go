package redistest

import (
	"errors"
	"os"
	"testing"
)

// program is the program that every process runs.
const program = "redis-server"

// requirements are the settings with which a test fails instead of being skipped.
const requirements = "PENSTOCK_REQUIRE_REDIS=1 or CI=true"

// requireRedis skips or fails the test if redis-server cannot run.
func requireRedis(t testing.TB) {
	t.Helper()
	err := lookup()
	switch {
	case err == nil:
	case required(err):
		t.Fatalf("redistest: %v; install Redis 7.0 or newer: %s requires it", err, requirements)
	default:
		t.Skipf("redistest: %v; install Redis 7.0 or newer to run this test", err)
	}
}

// required reports whether tests must fail because redis-server cannot run. On systems that this package
// does not support, they need not.
func required(err error) bool {
	set := os.Getenv("PENSTOCK_REQUIRE_REDIS") == "1" || os.Getenv("CI") == "true"
	return set && !errors.Is(err, errors.ErrUnsupported)
}
