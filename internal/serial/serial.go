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
		go q.run()
	}
}

func (q *Queue) run() {
	for {
		q.mu.Lock()
		fs := q.waiting
		q.waiting = nil
		if len(fs) == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		for _, f := range fs {
			f()
		}
	}
}
