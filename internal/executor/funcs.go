package executor

import "sync"

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
