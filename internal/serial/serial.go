// Package serial runs functions one after the other, away from whoever hands them in.
package serial

import "sync"

// A Queue runs what it is given in order, on a goroutine that lives only while there
// is something to run. The zero Queue is empty. It is safe for concurrent use.
type Queue struct {
	mu      sync.Mutex
	waiting []func()
	running bool
}

// Add puts f behind what waits, and returns at once.
func (q *Queue) Add(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, f)
	if !q.running {
		q.running = true
		go q.run(nil)
	}
}

// run begins with fs. One that calls runtime.Goexit ends its goroutine, not the queue.
func (q *Queue) run(fs []func()) {
	ended := false
	defer func() {
		if !ended {
			go q.run(fs)
		}
	}()
	for {
		for len(fs) > 0 {
			f := fs[0]
			fs = fs[1:]
			f()
		}
		if fs = q.take(); len(fs) == 0 {
			ended = true
			return
		}
	}
}

// take returns what waits. If that is nothing, nobody runs any more.
func (q *Queue) take() []func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	fs := q.waiting
	q.waiting = nil
	q.running = len(fs) > 0
	return fs
}
