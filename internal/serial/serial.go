// Package serial runs functions one at a time, in order, without blocking the caller.
package serial

import "sync"

// A Queue runs functions one at a time, in the order in which they were added. It has a goroutine
// only while there are functions to run. The zero Queue is empty and ready to use. It is safe for
// concurrent use.
type Queue struct {
	mu      sync.Mutex // guards waiting and running
	waiting []func()
	running bool // a goroutine runs the functions
}

// Add appends f to the queue and returns at once.
func (q *Queue) Add(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, f)
	if !q.running {
		q.running = true
		go q.run(nil)
	}
}

// run runs fs and then the waiting functions. If a function calls runtime.Goexit, its goroutine
// ends and a new one continues with the rest.
func (q *Queue) run(fs []func()) {
	finished := false
	defer func() {
		if !finished {
			go q.run(fs)
		}
	}()
	for {
		for len(fs) > 0 {
			f := fs[0]
			fs = fs[1:]
			f()
		}
		if fs = q.takeWaiting(); len(fs) == 0 {
			finished = true
			return
		}
	}
}

// takeWaiting removes and returns the waiting functions. If there are none, the caller must end: the
// next Add starts a new goroutine.
func (q *Queue) takeWaiting() []func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	fs := q.waiting
	q.waiting = nil
	q.running = len(fs) > 0
	return fs
}
