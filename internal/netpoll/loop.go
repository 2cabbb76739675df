//go:build (linux && !386 && !s390x) || simulatedpoll

package netpoll

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/internal/executor"
)

// A loop waits for events of its sockets and handles them on the same goroutine, so that a
// message wakes no other one. It is an edge-triggered epoll instance (man 7 epoll) that itself
// waits in Go's poller.
//
// # Ownership
//
// One goroutine at a time owns the loop: its generation is in state, and the fields below
// "of the owner" belong to it. While a Waiter's method runs, the bit handling is set. Before the
// first such call of a busy period, the owner wakes another goroutine, the standby, which then is
// the next one in the scheduler's run queue. If the method blocks, the scheduler therefore runs
// the standby, which finds the bit set, and takes the loop over. The former owner finds that
// out when the method returns, finishes only what belongs to that socket, and ends. If nothing
// blocks, the standby runs when the owner waits for the next events, and ends. So a handler that
// blocks delays other sockets by one switch between goroutines; one that computes delays them until
// the scheduler preempts it, as in any server.
//
// # Order of the atomic operations
//
// The owner sets the bit before it looks at armed, and the standby resets armed before it looks at the bit:
// otherwise a standby could run in between, find the bit not set and end, and the method would block without a
// standby.
type loop struct {
	epoll epoll
	slots slots
	pool  executor.Pool // runs standbys

	state atomic.Uint64 // generation<<1, and the bit handling
	armed atomic.Bool   // a standby has been woken and has not looked at the state yet

	polls func(fd uintptr) bool // the method value, stored so that using it allocates nothing

	// Of the owner.
	events  [maxEvents]event
	batch   []job
	next    int       // of batch: those before it have been handled
	again   []Waiter  // that have more to do
	current Waiter    // whose method runs while handling is set
	yielded time.Time // when another goroutine could last run
}

// handling is the bit of the state that says that the owner runs a Waiter's method, which may block. Otherwise, it waits,
// or runs code of this package, which does not block.
const handling = 1

const (
	maxEvents = 128

	// yieldInterval bounds how long other goroutines wait for a busy loop on the same processor.
	// It is measured in time: a batch of sockets with many messages each takes milliseconds.
	yieldInterval = 100 * time.Microsecond
)

// A job is a call of a Waiter's method.
type job struct {
	waiter Waiter
	kind   jobKind
	events Events
}

type jobKind uint8

const (
	jobReady jobKind = iota
	jobContinue
	jobTakenOver
)

func (j *job) run(t Turn) (again bool) {
	switch j.kind {
	case jobReady:
		return j.waiter.Ready(j.events, t)
	case jobContinue:
		return j.waiter.Continue(t)
	default:
		return j.waiter.TakenOver(t)
	}
}

// A Turn is one call of a Waiter's method by a loop. The zero Turn is not that of a loop.
type Turn struct {
	loop       *loop
	generation uint64
}

// Owned reports whether the goroutine of the call still owns the loop, so that TakenOver will be
// called if it blocks. Another goroutine may have taken the loop over before the method has
// begun.
func (t Turn) Owned() bool {
	return t.loop != nil && t.loop.state.Load() == t.generation<<1|handling
}

func newLoop() (*loop, error) {
	l := new(loop)
	if err := l.epoll.open(); err != nil {
		return nil, err
	}
	l.polls = l.poll
	l.pool.Retain()
	l.pool.Start(executor.Func(func() { l.lead(0) }))
	return l, nil
}

// close ends the loop. There must be no sockets.
func (l *loop) close() {
	l.epoll.close()
	l.pool.Release()
}

// Run is what a standby runs.
func (l *loop) Run() {
	l.armed.Store(false)
	s := l.state.Load()
	generation := s>>1 + 1
	if s&handling == 0 || !l.state.CompareAndSwap(s, generation<<1) {
		return
	}
	if l.call(generation, job{waiter: l.current, kind: jobTakenOver}) {
		l.lead(generation)
	}
}

// lead handles events until the loop is closed, or belongs to another goroutine.
func (l *loop) lead(generation uint64) {
	for {
		for l.next < len(l.batch) {
			j := l.batch[l.next]
			l.batch[l.next] = job{}
			l.next++
			if !l.call(generation, j) {
				return
			}
			l.yieldIfDue()
		}
		if !l.wait() {
			return
		}
	}
}

// call runs a job, and reports whether the caller still owns the loop.
func (l *loop) call(generation uint64, j job) (owns bool) {
	l.current = j.waiter
	l.state.Store(generation<<1 | handling)
	if !l.armed.Load() {
		l.armed.Store(true)
		l.pool.Start(l)
	}
	again := j.run(Turn{l, generation})
	if !l.state.CompareAndSwap(generation<<1|handling, generation<<1) {
		for again {
			again = j.waiter.Continue(Turn{})
		}
		return false
	}
	if again {
		l.again = append(l.again, j.waiter)
	}
	l.current = nil
	return true
}

// yieldIfDue lets other goroutines run.
func (l *loop) yieldIfDue() {
	if now := time.Now(); now.Sub(l.yielded) > yieldInterval {
		runtime.Gosched()
		l.yielded = time.Now()
	}
}

// wait fills the batch, for which it may wait in Go's poller. It returns false if the loop is closed.
func (l *loop) wait() bool {
	clear(l.batch)
	l.batch, l.next = l.batch[:0], 0
	return l.epoll.wait(l.polls) == nil
}

// poll returns false if there is nothing to do. It must be called by epoll.wait: Go's
// poller reports events of the epoll instance only once, too, so the last look must come after
// epoll.wait has cleared what was reported before.
func (l *loop) poll(fd uintptr) bool {
	n := l.epoll.now(fd, l.events[:])
	if n == 0 && len(l.again) == 0 {
		l.yielded = time.Now()
		return false
	}
	l.slots.mu.Lock()
	defer l.slots.mu.Unlock()
	for _, e := range l.events[:n] {
		if int(e.Fd) >= len(l.slots.waiters) || l.slots.waiters[e.Fd] == nil {
			continue
		}
		l.batch = append(l.batch, job{waiter: l.slots.waiters[e.Fd], events: eventsOf(e.Events)})
	}
	for i, w := range l.again {
		l.batch = append(l.batch, job{waiter: w, kind: jobContinue})
		l.again[i] = nil
	}
	l.again = l.again[:0]
	return true
}
