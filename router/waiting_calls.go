package router

import (
	"sync"
	"time"

	"github.com/penstock-go/penstock/internal/executor"
)

// A waitingCalls is the timer for the calls of one connection that wait in its serial queue,
// behind a slow event, for example. When a deadline passes, it takes the expired calls out of the
// queue and answers them. Calls wait in the order in which they were received and have the same
// timeout, so one timer is enough, and it is not touched when a call starts in time: when it
// fires, it finds out which calls still wait. Connections whose calls never wait have none.
type waitingCalls struct {
	conn *Conn

	mu    sync.Mutex
	timer *time.Timer
	at    time.Time // what the timer is set for; the zero Time if it is not set
}

// watchWaitingCall sets the timer for a call that has been queued behind another message.
func (c *Conn) watchWaitingCall(deadline time.Time) {
	w := c.waiting.Load()
	if w == nil {
		w = &waitingCalls{conn: c}
		if !c.waiting.CompareAndSwap(nil, w) {
			w = c.waiting.Load()
		}
	}
	w.set(deadline)
}

// set sets the timer, unless it is set for an earlier time.
func (w *waitingCalls) set(deadline time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.at.IsZero() && !deadline.Before(w.at) {
		return
	}
	w.at = deadline
	if left := time.Until(deadline); w.timer == nil {
		w.timer = time.AfterFunc(left, w.expire)
	} else {
		w.timer.Reset(left)
	}
}

// stop stops the timer of a connection that has ended.
func (w *waitingCalls) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
}

// expire answers the calls that have waited until their deadline. Only the goroutine that takes a
// message out of the queue owns it, so a call either expires here or starts. Each answer gets
// its own goroutine, because application code that it calls may end the goroutine.
func (w *waitingCalls) expire() {
	c := w.conn
	w.mu.Lock()
	w.at = time.Time{} // before the scan: a call that is queued after it sets the timer itself
	w.mu.Unlock()
	now := time.Now()
	var next time.Time
	expired := c.messages.Remove(nil, func(in *incoming) bool {
		if !in.route.rpc {
			return false
		}
		deadline := c.deadlineOf(in)
		if !deadline.After(now) {
			return true
		}
		if next.IsZero() {
			next = deadline
		}
		return false
	})
	if !next.IsZero() {
		w.set(next)
	}
	for _, in := range expired {
		go c.rejectExpired(in)
	}
}

// deadlineOf returns the time by which a call must be answered.
func (c *Conn) deadlineOf(in *incoming) time.Time { return in.At.Add(c.deadlines.timeout) }

// rejectExpired answers a call that has left the queue without being handled.
func (c *Conn) rejectExpired(in *incoming) {
	defer c.finishHandling(in.route)
	defer in.release()
	defer c.ws.Wake()
	c.rejectMessage(in, inspect(errDeadline, ""))
}

// enqueueCall adds a call to the connection's serial queue. It reports false if the deadline has
// passed while the queue was full.
func (c *Conn) enqueueCall(in *incoming) bool {
	deadline := c.deadlineOf(in) // another goroutine may own in after Enqueue
	switch c.messages.Enqueue(in, deadline) {
	case executor.Expired:
		return false
	case executor.Behind:
		c.watchWaitingCall(deadline)
	case executor.First:
	}
	return true
}
