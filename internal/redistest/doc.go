// Package redistest starts redis-server processes for tests: a single node, a cluster, or a master
// with a replica and a sentinel. A proxy simulates network failures in front of them.
//
//	func TestGet(t *testing.T) {
//		server := redistest.Start(t)
//		client := server.Client(t)
//		…
//		server.Pause()
//		…
//	}
//
// The package needs redis-server 7.0 or newer in PATH, on a Unix system. Without it, the test is
// skipped, or fails if PENSTOCK_REQUIRE_REDIS=1 or CI=true.
//
// A process ends with the test that started it, or with the test binary if that crashes or is
// killed. The package writes to disk only below t.TempDir.
package redistest
