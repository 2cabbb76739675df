// Package workerdtest runs the Worker of adapters/durableobject in tests, in workerd, the runtime of
// Cloudflare Workers, with its storage on disk.
//
//	func TestMain(m *testing.M) { workerdtest.Main(m) }
//
//	func TestLimiter(t *testing.T) {
//		server := workerdtest.Start(t)
//		client := durableobject.NewClient(server.URL, server.Secret)
//		…
//		server.Restart()
//		…
//	}
//
// The first Start of a test binary installs the packages of the Worker's package-lock.json, checks
// the types, and writes two bundles with wrangler: the one that a deployment uploads, and one whose
// clock a test controls. That needs Node.js 20 or newer with npm. Without them the test is skipped,
// or fails if PENSTOCK_REQUIRE_NODE=1 or CI=true.
//
// A process ends with the test that started it, or with the test binary if that crashes or is
// killed.
package workerdtest
