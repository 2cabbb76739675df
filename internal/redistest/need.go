package redistest

import (
	"errors"
	"os"
	"testing"
)

// program is what every process of this package runs.
const program = "redis-server"

// need skips the test, or fails it, if no redis-server can run here.
func need(t testing.TB) {
	t.Helper()
	if err := missing(t); err != nil {
		t.Skipf("redistest: %v; install Redis 7.0 or newer to run this test", err)
	}
}

// missing returns why no redis-server can run here, or nil. It fails the test
// where one is required. A system on which none can ever run is excused.
func missing(t testing.TB) error {
	t.Helper()
	err := find()
	required := os.Getenv("PENSTOCK_REQUIRE_REDIS") == "1" || os.Getenv("CI") == "true"
	if err != nil && required && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("redistest: %v; install Redis 7.0 or newer: PENSTOCK_REQUIRE_REDIS=1 or CI=true requires it", err)
	}
	return err
}
