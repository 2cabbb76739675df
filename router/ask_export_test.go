package router

// OpenAsks returns what a router has asked other nodes and waits for, what it is answering, the
// calls to clients of those, and the bytes of answers that callers have not taken.
func OpenAsks(r *Router) (asked, served, calls int, bytes int64) { return r.asks.Open() }
