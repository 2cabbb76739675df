// Package routertest tests the handlers of a router without a network: its
// client talks to the router over an in-memory pipe, on the real clock or inside
// a testing/synctest bubble.
//
//	func TestSay(t *testing.T) {
//		r := router.New(nil)
//		router.On(r, say)
//
//		conn := routertest.Dial(t, r)
//		conn.Send(Say{Room: "go", Text: "hi"})
//		said := routertest.Receive[Said](conn)
//		…
//	}
//
// Whatever does not come within ten seconds fails the test.
package routertest
