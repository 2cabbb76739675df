package session

import (
	"context"
	"sync"
	"time"
)

// This file delays calls of the store, and what follows them, if there are many. When clients return one after the
// other, but many in a second, round trips to the store and packets to other nodes cost more than what they do. So
// sessions that begin, are claimed or change at about the same time share them.

// laterDelay is short compared with the time that a client needs to come back, and long compared with a
// round trip.
const laterDelay = 20 * time.Millisecond

// laterFree is how many calls within laterDelay are not delayed.
const laterFree = 8

// gather returns when a client's call of the store can share its round trips, or ctx is done.
func (n *Node) gather(ctx context.Context) {
	ready := make(chan struct{})
	if !n.later.add(func() { close(ready) }) {
		return
	}
	select {
	case <-ready:
	case <-ctx.Done():
	}
}

// A later calls functions together, if there are many.
type later struct {
	mu     sync.Mutex // no other lock is acquired under it
	calls  []func()   // that wait for the end of the interval, which has laterDelay
	added  int        // in the interval
	isBusy bool       // more than laterFree were in the one before
	runs   bool       // an interval has begun
	closed bool       // none is delayed

	flushing sync.Mutex // held while functions are called, so that close waits for them
}

// add calls f within laterDelay. It returns false if the caller must do so at once, because there are few others.
func (l *later) add(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if !l.runs {
		l.runs = true
		time.AfterFunc(laterDelay, l.flush)
	}
	l.added++
	if !l.isBusy && l.added <= laterFree {
		return false
	}
	l.calls = append(l.calls, f)
	return true
}

// flush ends an interval, and calls what waits. Another one begins if there was anything in this one.
func (l *later) flush() {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.mu.Lock()
	calls := l.calls
	l.isBusy, l.runs = l.added > laterFree, l.added > 0 && !l.closed
	l.calls, l.added = nil, 0
	if l.runs {
		time.AfterFunc(laterDelay, l.flush)
	}
	l.mu.Unlock()
	for _, f := range calls {
		f()
	}
}

// close calls what waits. From then on, nothing does.
func (l *later) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.flush()
}
