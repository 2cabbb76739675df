package router

import (
	"sync"
	"sync/atomic"
)

// An inboundBudget counts the bytes of received messages that wait behind other messages
// of their connection, for all connections of a router. The first message in a queue is
// not counted, so that a connection that sends one message at a time pays nothing, and
// never waits for other connections.
type inboundBudget struct {
	max  int64
	used atomic.Int64

	mu    sync.Mutex
	freed chan struct{} // closed when used falls below max; nil if nothing waits for that
}

func (b *inboundBudget) exceeded() bool { return b.used.Load() >= b.max }

func (b *inboundBudget) add(n int64) { b.used.Add(n) }

func (b *inboundBudget) release(n int64) {
	if n == 0 {
		return
	}
	after := b.used.Add(-n)
	if before := after + n; before < b.max || after >= b.max {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// room returns a channel that is closed when the budget is not exceeded any more.
func (b *inboundBudget) room() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed == nil {
		b.freed = make(chan struct{})
		if !b.exceeded() { // release looked for the channel before it was there
			close(b.freed)
			defer func() { b.freed = nil }()
		}
	}
	return b.freed
}
