package session

import (
	"context"
	"sync"
)

// tasks are the goroutines that change records, until the node is closed.
type tasks struct {
	mu     sync.Mutex // no other lock is acquired under it
	n      int
	closed bool
	idle   chan struct{} // close waits until n is 0; nil if it does not
}

// begin adds a goroutine, which must call end. It returns false if none may begin any more.
func (t *tasks) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.n++
	return true
}

func (t *tasks) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n--
	if t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// close waits until there are none, or ctx is done. Then none begins any more.
func (t *tasks) close(ctx context.Context) {
	for ctx.Err() == nil {
		idle := t.closeIfIdle()
		if idle == nil {
			return
		}
		select {
		case <-idle:
		case <-ctx.Done():
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// closeIfIdle returns nil if there are none; otherwise what is closed when there are none.
func (t *tasks) closeIfIdle() (idle <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == 0 {
		t.closed = true
		return nil
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	return t.idle
}
