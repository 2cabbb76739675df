package router

import (
	"sync"
	"time"
)

// A deadlineQueue answers the calls whose deadline has passed. All calls have the same
// timeout, counted from when they were received, so one list in that order and one timer are
// enough.
type deadlineQueue struct {
	timeout time.Duration

	mu          sync.Mutex
	first, last *Context
	timer       *time.Timer
	armed       bool // timer is set
}

// add inserts a call and sets the timer if the call is the next to expire.
func (q *deadlineQueue) add(c *Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c.call.queued = true
	// Calls of other connections that were received later may have been added earlier.
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

// insert links c after before, or as the first if before is nil.
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

// remaining returns the time until the call's deadline.
func (q *deadlineQueue) remaining(c *Context) time.Duration {
	return time.Until(c.receivedAt.Add(q.timeout))
}

// remove takes a call out of the queue, if it is still there.
func (q *deadlineQueue) remove(c *Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unlink(c)
}

// unlink is remove with the lock held.
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

// expire runs when the timer fires. The timer is not stopped when a call is answered in time,
// so usually nothing has expired. Each answer gets its own goroutine, because it waits for
// room in its connection's send queue.
func (q *deadlineQueue) expire() {
	for {
		c := q.overdue()
		if c == nil {
			return
		}
		go c.respondDeadlineExceeded()
	}
}

// respondDeadlineExceeded answers a call whose deadline has passed and cancels its context.
func (c *Context) respondDeadlineExceeded() {
	c.conn.respondCall(c, nil, inspect(errDeadline, ""))
	c.conn.ws.Wake()
	c.call.end()
}

// overdue removes and returns a call whose deadline has passed. If there is none, it sets the
// timer for the next call and returns nil.
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
