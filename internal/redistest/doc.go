// Package redistest gives tests real redis-server processes of their own: a
// single node, a cluster, a master and its replica under a sentinel, and a proxy
// that breaks the network in front of them.
//
//	func TestGet(t *testing.T) {
//		server := redistest.Start(t)
//		client := server.Client(t)
//		…
//		server.Pause()
//		…
//	}
//
// It needs redis-server 7.0 or newer in PATH, on a Unix. Where that is missing
// the test is skipped, or fails if PENSTOCK_REQUIRE_REDIS=1 or CI=true. Tests
// that only need some Redis use [Any], which has a stand-in instead of skipping.
//
// A process ends with the test that started it, or with the test binary should
// that crash or be killed. Nothing is ever written to disk but below t.TempDir.
package redistest
