package router

import (
	"sync"
	"time"
)

// A deadlineQueue answers the calls whose deadline has passed, wherever they are: in ingress, in
// the serial queue behind a slow event, or in their handler. It is a binary heap with the next
// deadline first, so a client that mixes short and long timeouts does not slow others down.
type deadlineQueue struct {
	mu    sync.Mutex
	calls []queuedCall
	timer *time.Timer
	at    time.Time // what the timer is set for; the zero Time if it is not set
}

type queuedCall struct {
	*Context

	deadline time.Time
}

// before reports whether a call is closer to the front than another one.
func (c queuedCall) before(other queuedCall) bool { return c.deadline.Before(other.deadline) }

// add inserts a call, unless it has no deadline, and sets the timer if the call is the next to
// expire. The call must not be in the queue.
func (q *deadlineQueue) add(c *Context) {
	deadline, ok := c.Deadline()
	if !ok {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls = append(q.calls, queuedCall{})
	q.up(len(q.calls)-1, queuedCall{c, deadline})
	q.setTimer()
}

// setTimer sets the timer for the first call, unless it is set for an earlier time. The timer is
// not stopped when a call is answered in time, so usually nothing has expired when it fires.
func (q *deadlineQueue) setTimer() {
	deadline := q.calls[0].deadline
	if !q.at.IsZero() && !deadline.Before(q.at) {
		return
	}
	q.at = deadline
	if left := time.Until(deadline); q.timer == nil {
		q.timer = time.AfterFunc(left, q.expire)
	} else {
		q.timer.Reset(left)
	}
}

// remove takes a call out of the queue, and reports whether it was there.
func (q *deadlineQueue) remove(c *Context) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.removeLocked(c)
}

// maxKeptDeadlines is the largest capacity that an empty queue keeps.
const maxKeptDeadlines = 1024

// removeLocked is remove with the lock held.
func (q *deadlineQueue) removeLocked(c *Context) bool {
	i := int(c.call.place) - 1
	if i < 0 {
		return false
	}
	c.call.place = 0
	last := len(q.calls) - 1
	moved := q.calls[last]
	q.calls[last] = queuedCall{}
	q.calls = q.calls[:last]
	switch {
	case i == last:
	case i > 0 && moved.before(q.calls[(i-1)/2]):
		q.up(i, moved)
	default:
		q.down(i, moved)
	}
	if last == 0 && cap(q.calls) > maxKeptDeadlines {
		q.calls = nil
	}
	return true
}

// up stores a call at i, or closer to the front.
func (q *deadlineQueue) up(i int, c queuedCall) {
	for i > 0 {
		parent := (i - 1) / 2
		if !c.before(q.calls[parent]) {
			break
		}
		q.put(i, q.calls[parent])
		i = parent
	}
	q.put(i, c)
}

// down stores a call at i, or farther from the front.
func (q *deadlineQueue) down(i int, c queuedCall) {
	for {
		child := 2*i + 1
		if child >= len(q.calls) {
			break
		}
		if right := child + 1; right < len(q.calls) && q.calls[right].before(q.calls[child]) {
			child = right
		}
		if !q.calls[child].before(c) {
			break
		}
		q.put(i, q.calls[child])
		i = child
	}
	q.put(i, c)
}

func (q *deadlineQueue) put(i int, c queuedCall) {
	q.calls[i] = c
	c.call.place = int32(i + 1)
}

// expire runs when the timer fires. Each answer gets its own goroutine, because it waits for room
// in its connection's send queue, and application code that it calls may end the goroutine.
func (q *deadlineQueue) expire() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.at = time.Time{}
	now := time.Now()
	for len(q.calls) > 0 && !q.calls[0].deadline.After(now) {
		c := q.calls[0].Context
		q.removeLocked(c)
		go c.conn.cancelCall(c, inspect(errDeadline, "").at("deadline"), endedByDeadline)
	}
	if len(q.calls) > 0 {
		q.setTimer()
	}
}
