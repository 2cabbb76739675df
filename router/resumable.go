package router

import (
	"sync/atomic"

	"github.com/penstock-go/penstock/internal/topic"
)

// A resumable is what a connection needs because its client recovers what it has missed.
type resumable struct {
	session atomic.Pointer[connSession] // nil if there is none; stored only with Conn.mu held

	// Guarded by Conn.mu: the topics to which the client has subscribed by itself before it had a
	// session. No handler has granted them.
	ownTopics map[string]struct{}

	holding topic.Holding // of all topics

	// Topics for which something is held until the answer to $ws:resume is queued. The serial route
	// owns it.
	joined []string
}

// resumableState returns the connection's resumable, and creates it if there is none.
func (c *Conn) resumableState() *resumable {
	if r := c.extra().recovery.Load(); r != nil {
		return r
	}
	created := new(resumable)
	created.holding.Init()
	extra := c.ownExtra()
	extra.recovery.CompareAndSwap(nil, created)
	return extra.recovery.Load()
}
