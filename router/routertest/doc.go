// Package routertest tests the handlers of a router without a network. The client of [Dial]
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
// [NewCluster] tests an application on several nodes, with clients, a store and a network that fail
// when the test says so. docs/guides/testing-a-cluster.md of this module describes that:
// https://github.com/penstock-go/penstock/blob/main/docs/guides/testing-a-cluster.md
//
// A message that does not arrive within ten seconds fails the test. In a bubble,
// these are seconds of its virtual time.
package routertest
