package executor

import (
	"sync"
)

// A FuncQueue runs functions one after another, on a goroutine that lives only while
// there is something to run. The zero FuncQueue is empty. It is safe for concurrent use.
type FuncQueue struct {
	mu      sync.Mutex
	waiting []func()
	running bool
}

// Add queues f behind what waits, and returns at once.
func (q *FuncQueue) Add(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, f)
	if !q.running {
		q.running = true
		go q.run(nil)
	}
}

// run begins with fs. A function that calls runtime.Goexit ends its goroutine, and the
// queue goes on with the next one.
func (q *FuncQueue) run(fs []func()) {
	Do(func() {
		for fs = q.orTake(fs); len(fs) > 0; fs = q.orTake(fs) {
			f := fs[0]
			fs = fs[1:]
			f()
		}
	}, func() { go q.run(fs) })
}

// orTake returns fs, or the waiting functions if that is empty.
func (q *FuncQueue) orTake(fs []func()) []func() {
	if len(fs) > 0 {
		return fs
	}
	return q.take()
}

// take returns the waiting functions. If there are none, it marks the queue as stopped.
func (q *FuncQueue) take() []func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	fs := q.waiting
	q.waiting = nil
	q.running = len(fs) > 0
	return fs
}

// Funcs is the owner of a [SerialQueue] of functions, which nothing ends.
type Funcs struct{}

// RunJob calls f.
func (Funcs) RunJob(f func()) { f() }

// AfterJob does nothing.
func (Funcs) AfterJob(bool) {}

// JobBytes returns 0.
func (Funcs) JobBytes(func()) int64 { return 0 }

// Ended returns nil.
func (Funcs) Ended() <-chan struct{} { return nil }

// Do calls f. If f calls runtime.Goexit, which ends the goroutine, Do calls exited before: what must
// happen nevertheless is done there. A panic of f passes, without a call of exited.
func Do(f, exited func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			panic(v)
		}
		exited()
	}()
	f()
	returned = true
}

// A Gate calls functions until it is closed. The zero Gate is open. It is safe for concurrent use,
// but not by the functions that it calls.
type Gate struct {
	mu     sync.RWMutex // held for reading while a function runs
	closed bool
}

// Do calls f, and reports whether the Gate is open. Functions may run at the same time.
func (g *Gate) Do(f func()) (open bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return false
	}
	f()
	return true
}

// Close prevents further calls, and waits for those that have begun.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}
