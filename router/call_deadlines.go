package router

import (
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/timerqueue"
)

// This file answers the calls whose deadline has passed, wherever they are: in ingress, in the serial
// queue behind a slow event, or in their handler. A connection has one entry in the queue of its
// shard, for the first deadline of its calls. The entry stays when the call is answered in time, so
// calls with the same timeout change the queue once per timeout and not once per call. When it fires,
// the open calls are searched for those that are due; their number is bounded by Limits.Concurrency.

// A deadlineQueue fires for connections with a call that is due.
type deadlineQueue = timerqueue.Queue[*deadlineTimer]

// A deadlineTimer is the connection as an entry of the deadlineQueue.
type deadlineTimer Conn

// Place implements [timerqueue.Entry].
func (t *deadlineTimer) Place() *int32 { return &t.deadlinePlace }

// Fire implements [timerqueue.Entry]. Each answer gets its own goroutine, because it waits for room in
// the send queue, and application code that it calls may end the goroutine.
func (t *deadlineTimer) Fire() {
	c := (*Conn)(t)
	for _, ctx := range c.takeExpired() {
		go c.cancelCall(ctx, failure.Of(errDeadline).At("deadline"), endedByDeadline)
	}
}

// callDeadlines are the deadlines of a connection's calls. Times are since the router was created.
type callDeadlines struct {
	received atomic.Pointer[Context] // the call before stage 5, if it has a deadline; set to nil only under callIndex.mu
	soonest  atomic.Int64            // what the entry in the queue is set for, in nanoseconds; 0 if there is none; stored only under callIndex.mu
}

func (c *Conn) deadlines() *deadlineQueue { return &c.router.shards[c.shard].deadlines }

// watchDeadline makes sure that a call before stage 5 is answered at its deadline. The caller is the
// reading goroutine.
func (c *Conn) watchDeadline(ctx *Context) {
	due, ok := c.due(ctx)
	if !ok {
		return
	}
	x := &c.calls
	// takeExpired clears soonest before it looks at received, so it sees the call, or soonest is clear
	// here.
	x.received.Store(ctx)
	if soonest := x.soonest.Load(); soonest != 0 && soonest <= int64(due) {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	c.scheduleDeadlineLocked(due)
}

// unwatchDeadline undoes watchDeadline, and reports false if the deadline has passed.
func (c *Conn) unwatchDeadline(ctx *Context) bool {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	return c.calls.received.CompareAndSwap(ctx, nil) || ctx.call.timeout == 0
}

// due returns the deadline of a call; ok is false if it has none.
func (c *Conn) due(ctx *Context) (due time.Duration, ok bool) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0, false
	}
	return max(deadline.Sub(c.router.created), 1), true
}

// scheduleDeadlineLocked sets the entry in the queue, unless it is set for an earlier time. It
// needs callIndex.mu.
func (c *Conn) scheduleDeadlineLocked(due time.Duration) {
	if soonest := c.calls.soonest.Load(); soonest != 0 && soonest <= int64(due) {
		return
	}
	c.calls.soonest.Store(int64(due))
	c.deadlines().Set((*deadlineTimer)(c), due-time.Since(c.router.created))
}

// takeExpired returns the calls whose deadline has passed, and sets the entry in the queue for the next
// one. It returns a call again if that has not been answered since.
func (c *Conn) takeExpired() (expired []*Context) {
	x := &c.calls
	x.mu.Lock()
	defer x.mu.Unlock()
	x.soonest.Store(0)
	now, next := time.Since(c.router.created), time.Duration(0)
	look := func(ctx *Context) (passed bool) {
		due, ok := c.due(ctx)
		if ok && due > now && (next == 0 || due < next) {
			next = due
		}
		return ok && due <= now
	}
	if ctx := x.received.Load(); ctx != nil && look(ctx) {
		x.received.CompareAndSwap(ctx, nil)
		expired = append(expired, ctx)
	}
	for ctx := x.first; ctx != nil; ctx = ctx.call.next {
		if look(ctx) {
			expired = append(expired, ctx)
		}
	}
	if next != 0 {
		c.scheduleDeadlineLocked(next)
	}
	return expired
}

// stopDeadlines frees the entry in the queue. No call is open any more.
func (c *Conn) stopDeadlines() {
	if c.calls.soonest.Load() != 0 {
		c.deadlines().Stop((*deadlineTimer)(c))
	}
}
