// Package routertest tests the handlers of a router without a network. Its client
// connects over an in-memory pipe, with the real clock or inside a
// testing/synctest bubble.
//
//	func TestSay(t *testing.T) {
//		r := router.New(nil)
//		router.On(r, say)
//
//		conn := routertest.Dial(t, r)
//		conn.Send(Say{Room: "go", Text: "hi"})
//		reply := routertest.Receive[Said](conn)
//		…
//	}
//
// A message that does not arrive within ten seconds fails the test. In a bubble,
// these are seconds of its virtual time.
package routertest
