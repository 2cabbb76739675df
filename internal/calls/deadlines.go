package calls

import (
	"time"

	"github.com/penstock-go/penstock/internal/timerqueue"
)

// This file answers the calls whose deadline has passed, wherever they are: in ingress, in the serial
// queue behind a slow event, or in their handler. A connection has one entry in the queue of its
// shard, for the first deadline of its calls. The entry stays when the call is answered in time, so
// calls with the same timeout change the queue once per timeout and not once per call. When it fires,
// the open calls are searched for those that are due; their number is bounded by Limits.Concurrency.

// Deadlines are those of the calls of many connections.
type Deadlines[C any] struct {
	Base    time.Time // of the times in an Index
	Expired func(*C)  // answers a call; it may block

	queue timerqueue.Queue[*timer[C]]
}

// A timer is an Index as an entry of a queue.
type timer[C any] Index[C]

// Place implements [timerqueue.Entry].
func (t *timer[C]) Place() *int32 { return &t.place }

// Fire implements [timerqueue.Entry]. Each answer gets its own goroutine, because it waits for room in
// the send queue, and application code that it calls may end the goroutine.
func (t *timer[C]) Fire() {
	for _, k := range (*Index[C])(t).takeExpired() {
		go t.Deadlines.Expired(k.Of)
	}
}

// due returns the deadline of a call; ok is false if it has none.
func (x *Index[C]) due(k *Call[C]) (due time.Duration, ok bool) {
	deadline, ok := k.Deadline()
	if !ok {
		return 0, false
	}
	return max(deadline.Sub(x.Deadlines.Base), 1), true
}

// Watch makes sure that a call before stage 5 is answered at its deadline. The caller is the reading
// goroutine.
func (x *Index[C]) Watch(k *Call[C]) {
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

// Unwatch undoes Watch, and reports false if the deadline has passed.
func (x *Index[C]) Unwatch(k *Call[C]) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.received.CompareAndSwap(k, nil) || k.Timeout == 0
}

// isScheduled reports whether the entry in the queue is set for a time, or for an earlier one.
func (x *Index[C]) isScheduled(due time.Duration) bool {
	soonest := x.soonest.Load()
	return soonest != 0 && soonest <= int64(due)
}

// scheduleLocked sets the entry in the queue, unless it is set for an earlier time.
func (x *Index[C]) scheduleLocked(due time.Duration) {
	if x.isScheduled(due) {
		return
	}
	x.soonest.Store(int64(due))
	x.Deadlines.queue.Set((*timer[C])(x), due-time.Since(x.Deadlines.Base))
}

// takeExpired returns the calls whose deadline has passed, and sets the entry in the queue for the next
// one. It returns a call again if that has not been answered since.
func (x *Index[C]) takeExpired() (expired []*Call[C]) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.soonest.Store(0)
	now, next := time.Since(x.Deadlines.Base), time.Duration(0)
	look := func(k *Call[C]) (passed bool) {
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

// Stop frees the entry in the queue. No call is open any more.
func (x *Index[C]) Stop() {
	if x.soonest.Load() != 0 {
		x.Deadlines.queue.Stop((*timer[C])(x))
	}
}
