package router

import (
	"sync"
	"time"
)

// A watch answers the calls whose time is up. They all have the same time from
// when they were received, so one list in that order and one timer are enough.
type deadlineQueue struct {
	timeout time.Duration

	mu          sync.Mutex
	first, last *Context
	timer       *time.Timer
	armed       bool
}

func (q *deadlineQueue) add(c *Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.call.queued = true
	// It has waited for its turn, but others that came later may have had theirs.
	before := q.last
	for before != nil && before.receivedAt.After(c.receivedAt) {
		before = before.call.previous
	}
	q.insert(c, before)
	if q.armed && before != nil {
		return
	}
	q.armed = true
	if left := q.remaining(c); q.timer == nil {
		q.timer = time.AfterFunc(left, q.expire)
	} else {
		q.timer.Reset(left)
	}
}

// insert links c behind before, which is nil if c is the first.
func (q *deadlineQueue) insert(c, before *Context) {
	next := &q.first
	if before != nil {
		next = &before.call.next
	}
	c.call.previous, c.call.next = before, *next
	if *next == nil {
		q.last = c
	} else {
		(*next).call.previous = c
	}
	*next = c
}

func (q *deadlineQueue) remaining(c *Context) time.Duration {
	return time.Until(c.receivedAt.Add(q.timeout))
}

func (q *deadlineQueue) remove(c *Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unlink(c)
}

func (q *deadlineQueue) unlink(c *Context) {
	k := &c.call
	if !k.queued {
		return
	}
	k.queued = false
	if k.previous == nil {
		q.first = k.next
	} else {
		k.previous.call.next = k.next
	}
	if k.next == nil {
		q.last = k.previous
	} else {
		k.next.call.previous = k.previous
	}
	k.previous, k.next = nil, nil
}

// expire runs when the timer fires. The timer is not stopped when a call is
// answered in time, so most often there is nothing to do.
func (q *deadlineQueue) expire() {
	for {
		c := q.overdue()
		if c == nil {
			return
		}
		go c.respondDeadlineExceeded() // its connection may have no room for the answer
	}
}

func (c *Context) respondDeadlineExceeded() {
	c.conn.respondCall(c, nil, inspect(errDeadline, ""))
	c.conn.ws.Wake()
	c.call.end()
}

// overdue takes out a call whose time is up. Without one, it sets the timer for
// the next.
func (q *deadlineQueue) overdue() *Context {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.first
	if c == nil {
		q.armed = false
		return nil
	}
	if left := q.remaining(c); left > 0 {
		q.timer.Reset(left)
		return nil
	}
	q.unlink(c)
	return c
}
