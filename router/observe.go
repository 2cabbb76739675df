package router

import (
	"github.com/penstock-go/penstock/router/observe"
)

// Observe registers a function that is called for each [observe.Event] of this node, after those that were
// registered before it. It panics if f is nil or the router has begun to serve. Package
// middleware/metrics provides an observer for Prometheus.
//
// The function is called concurrently, sometimes under locks: it must return quickly, must not
// block, and must not call the router or runtime.Goexit. Its panics are recovered. Events allocate
// no memory, and a router without observers does not read the clock for them.
func (r *Router) Observe(f func(observe.Event)) {
	r.mustNotBeServing("Observe")
	if f == nil {
		panic("router: the function of Observe is nil")
	}
	before, f := r.observer, r.recoverObserver(f)
	if before == nil {
		r.observer = f
		return
	}
	r.observer = func(e observe.Event) {
		before(e)
		f(e)
	}
}

// observe is small enough to be inlined: without an observer, an event costs one branch.
func (r *Router) observe(e observe.Event) {
	if r.observer != nil {
		r.observer(e)
	}
}

// Stats is a snapshot of a router's connections, which are those of its node.
type Stats struct {
	Conns          int // open connections
	QueuedMessages int // in the send queues of all connections
	QueuedBytes    int // of these messages
}

// Stats returns a snapshot of the connections of this node. It iterates over all of them and locks
// each briefly.
func (r *Router) Stats() Stats {
	var stats Stats
	for c := range r.Conns() {
		messages, bytes := c.sub.WS.Pending()
		stats.Conns++
		stats.QueuedMessages += messages
		stats.QueuedBytes += bytes
	}
	return stats
}
