package router

import (
	"sync"
	"time"
)

// Workers are goroutines that wait for the next lane to run. A new goroutine
// begins with a small stack, and growing it to what decoding a message takes
// costs more than the rest of the hand-over; a worker's has grown already.
type workers struct {
	mu    sync.Mutex
	conns int           // that they work for; without one, no worker waits
	idle  []chan func() // of each that waits, the last to come first
	spare int           // how many were waiting all the time since the last check
	timer *time.Timer
	armed bool

	_ [64]byte // keeps shards on different cache lines
}

const (
	mostIdleWorkers = 256
	workerCheck     = time.Second
)

// start runs f on a goroutine.
func (w *workers) start(f func()) {
	w.mu.Lock()
	n := len(w.idle)
	if n == 0 {
		w.mu.Unlock()
		go w.work(f)
		return
	}
	worker := w.idle[n-1]
	w.idle = w.idle[:n-1]
	w.spare = min(w.spare, n-1)
	w.mu.Unlock()
	worker <- f
}

func (w *workers) work(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		f()
		if !w.wait(next) {
			return
		}
		f = <-next
	}
}

// wait adds a worker to those that wait, unless there are enough.
func (w *workers) wait(next chan func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conns == 0 || len(w.idle) == mostIdleWorkers {
		return false
	}
	w.idle = append(w.idle, next)
	switch {
	case w.armed:
	case w.timer == nil:
		w.timer = time.AfterFunc(workerCheck, w.check)
	default:
		w.timer.Reset(workerCheck)
	}
	w.armed = true
	return true
}

// check ends the workers that nobody has needed since the last time.
func (w *workers) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(w.spare)
	w.spare = len(w.idle)
	if w.armed = w.spare > 0; w.armed {
		w.timer.Reset(workerCheck)
	}
}

// end ends the n workers that have waited longest.
func (w *workers) end(n int) {
	for _, worker := range w.idle[:n] {
		worker <- nil
	}
	w.idle = append(w.idle[:0], w.idle[n:]...)
}

// join tells that there is one more connection to work for.
func (w *workers) join() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns++
}

// leave undoes join.
func (w *workers) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conns--; w.conns == 0 {
		w.end(len(w.idle))
		w.spare = 0
	}
}
