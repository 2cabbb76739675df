package router

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A call is an RPC that has been started: what it needs beyond an event. Its
// context is made when somebody asks for it, because most handlers do not.
type call struct {
	mu       sync.Mutex
	answered bool // it has one answer: the first

	ended atomic.Bool
	own   atomic.Pointer[ownContext]

	watched        bool // it is in its watch; under the watch's lock
	previous, next *Context
}

type ownContext struct {
	context.Context

	cancel context.CancelFunc
}

func (k *call) context(parent context.Context, deadline time.Time) context.Context {
	if own := k.own.Load(); own != nil {
		return own.Context
	}
	ctx, cancel := context.WithDeadline(parent, deadline)
	if !k.own.CompareAndSwap(nil, &ownContext{ctx, cancel}) {
		cancel()
	} else if k.ended.Load() {
		cancel()
	}
	return k.own.Load().Context
}

// take reports whether the answer may go: whether it is the first.
func (k *call) take() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	first := !k.answered
	k.answered = true
	return first
}

// end cancels the context, which may be made later.
func (k *call) end() {
	k.ended.Store(true)
	if own := k.own.Load(); own != nil {
		own.cancel()
	}
}

// A watch answers the calls whose time is up. They all have the same time from
// when they were received, so one list in that order and one timer are enough.
type watch struct {
	timeout time.Duration

	mu          sync.Mutex
	first, last *Context
	timer       *time.Timer
	armed       bool
}

func (w *watch) add(c *Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.call.watched = true
	// It has waited for its turn, but others that came later may have had theirs.
	before := w.last
	for before != nil && before.receivedAt.After(c.receivedAt) {
		before = before.call.previous
	}
	w.insert(c, before)
	if w.armed && before != nil {
		return
	}
	w.armed = true
	if left := w.left(c); w.timer == nil {
		w.timer = time.AfterFunc(left, w.expire)
	} else {
		w.timer.Reset(left)
	}
}

// insert links c behind before, which is nil if c is the first.
func (w *watch) insert(c, before *Context) {
	next := &w.first
	if before != nil {
		next = &before.call.next
	}
	c.call.previous, c.call.next = before, *next
	if *next == nil {
		w.last = c
	} else {
		(*next).call.previous = c
	}
	*next = c
}

func (w *watch) left(c *Context) time.Duration {
	return time.Until(c.receivedAt.Add(w.timeout))
}

func (w *watch) remove(c *Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unlink(c)
}

func (w *watch) unlink(c *Context) {
	k := &c.call
	if !k.watched {
		return
	}
	k.watched = false
	if k.previous == nil {
		w.first = k.next
	} else {
		k.previous.call.next = k.next
	}
	if k.next == nil {
		w.last = k.previous
	} else {
		k.next.call.previous = k.previous
	}
	k.previous, k.next = nil, nil
}

// expire runs when the timer fires. The timer is not stopped when a call is
// answered in time, so most often there is nothing to do.
func (w *watch) expire() {
	for {
		c := w.overdue()
		if c == nil {
			return
		}
		go c.answerLate() // its connection may have no room for the answer
	}
}

func (c *Context) answerLate() {
	c.conn.answer(c, nil, inspect(errLate, ""))
	c.conn.ws.Wake()
	c.call.end()
}

// overdue takes out a call whose time is up. Without one, it sets the timer for
// the next.
func (w *watch) overdue() *Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.first
	if c == nil {
		w.armed = false
		return nil
	}
	if left := w.left(c); left > 0 {
		w.timer.Reset(left)
		return nil
	}
	w.unlink(c)
	return c
}
