package router

import (
	"time"

	"github.com/penstock-go/penstock/internal/timerqueue"
)

// This file answers the calls whose deadline has passed, wherever they are: in ingress, in the serial
// queue behind a slow event, or in their handler. A connection has one entry in the queue of its
// shard, for the first deadline of its calls. The entry stays when the call is answered in time, so
// calls with the same timeout change the queue once per timeout and not once per call. When it fires,
// the open calls are searched for those that are due; their number is bounded by Limits.Concurrency.

// callDeadlines are those of the connections of a shard.
type callDeadlines struct {
	base    time.Time      // of the times in callIndex
	expired func(*Context) // answers a call; it may block
	queue   timerqueue.Queue[*deadlineTimer]
}

// A deadlineTimer is the callIndex as an entry of a queue.
type deadlineTimer callIndex

// Place implements [timerqueue.Entry].
func (t *deadlineTimer) Place() *int32 { return &t.place }

// Fire implements [timerqueue.Entry]. Each answer gets its own goroutine, because it waits for room in
// the send queue, and application code that it calls may end the goroutine.
func (t *deadlineTimer) Fire() {
	for _, k := range (*callIndex)(t).takeExpired() {
		go t.deadlines.expired(k.of)
	}
}

// due returns the deadline of a call; ok is false if it has none.
func (x *callIndex) due(k *call) (due time.Duration, ok bool) {
	deadline, ok := k.deadline()
	if !ok {
		return 0, false
	}
	return max(deadline.Sub(x.deadlines.base), 1), true
}

// watch makes sure that a call before stage 5 is answered at its deadline. The caller is the reading
// goroutine.
func (x *callIndex) watch(k *call) {
	due, ok := x.due(k)
	if !ok {
		return
	}
	// takeExpired clears soonest before it looks at received, so it sees the call, or soonest is clear
	// here.
	x.received.Store(k)
	if x.isScheduled(due) {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.scheduleLocked(due)
}

// unwatch undoes watch, and reports false if the deadline has passed.
func (x *callIndex) unwatch(k *call) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.received.CompareAndSwap(k, nil) || k.timeout == 0
}

// isScheduled reports whether the entry in the queue is set for a time, or for an earlier one.
func (x *callIndex) isScheduled(due time.Duration) bool {
	soonest := x.soonest.Load()
	return soonest != 0 && soonest <= int64(due)
}

// scheduleLocked sets the entry in the queue, unless it is set for an earlier time.
func (x *callIndex) scheduleLocked(due time.Duration) {
	if x.isScheduled(due) {
		return
	}
	x.soonest.Store(int64(due))
	x.deadlines.queue.Set((*deadlineTimer)(x), due-time.Since(x.deadlines.base))
}

// takeExpired returns the calls whose deadline has passed, and sets the entry in the queue for the next
// one. It returns a call again if that has not been answered since.
func (x *callIndex) takeExpired() (expired []*call) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.soonest.Store(0)
	now, next := time.Since(x.deadlines.base), time.Duration(0)
	look := func(k *call) (passed bool) {
		due, ok := x.due(k)
		if ok && due > now && (next == 0 || due < next) {
			next = due
		}
		return ok && due <= now
	}
	if k := x.received.Load(); k != nil && look(k) {
		x.received.CompareAndSwap(k, nil)
		expired = append(expired, k)
	}
	for k := x.first; k != nil; k = k.next {
		if look(k) {
			expired = append(expired, k)
		}
	}
	if next != 0 {
		x.scheduleLocked(next)
	}
	return expired
}

// stop frees the entry in the queue. No call is open any more.
func (x *callIndex) stop() {
	if x.soonest.Load() != 0 {
		x.deadlines.queue.Stop((*deadlineTimer)(x))
	}
}
