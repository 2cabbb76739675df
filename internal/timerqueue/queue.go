// Package timerqueue replaces many timers by one.
package timerqueue

import (
	"sync"
	"time"
)

// An Entry is what a Queue calls at its time, usually a pointer to a connection.
type Entry interface {
	// Place returns where the Queue stores the place of the entry, whose lock guards it. It must
	// contain 0 at first.
	Place() *int32

	// Fire is called when the time has come, on the goroutine of the timer. The entry is then not in
	// the queue. Fire must not block for long, because other entries wait.
	Fire()
}

// A Queue calls Fire of entries at their times. It is a binary heap with the next time first, so it
// makes no difference whether times are alike. The zero Queue is empty. It is safe for concurrent
// use, and holds its lock for none of the calls of Fire.
type Queue[T Entry] struct {
	mu    sync.Mutex
	heap  []timed[T]
	timer *time.Timer
	at    time.Time // what the timer is set for; the zero Time if it is not set
	base  time.Time // of the times in the heap
}

type timed[T Entry] struct {
	due   time.Duration // since base
	entry T
}

// Set makes the queue call e.Fire after d, instead of when it was set before.
func (q *Queue[T]) Set(e T, d time.Duration) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.base.IsZero() {
		q.base = now
	}
	t := timed[T]{now.Sub(q.base) + d, e}
	i := int(*e.Place()) - 1
	switch {
	case i < 0:
		q.heap = append(q.heap, timed[T]{})
		q.up(len(q.heap)-1, t)
	case t.due < q.heap[i].due:
		q.up(i, t)
	default:
		q.down(i, t)
	}
	q.setTimer()
}

// Stop takes e out of the queue. A call of Fire that has begun may still run.
func (q *Queue[T]) Stop(e T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.removeLocked(e)
}

func (q *Queue[T]) removeLocked(e T) {
	i := int(*e.Place()) - 1
	if i < 0 {
		return
	}
	*e.Place() = 0
	last := len(q.heap) - 1
	moved := q.heap[last]
	q.heap[last] = timed[T]{}
	q.heap = q.heap[:last]
	switch {
	case last == 0:
		q.timer.Stop()
		q.heap, q.at = nil, time.Time{}
	case i == last:
	case i > 0 && moved.due < q.heap[(i-1)/2].due:
		q.up(i, moved)
	default:
		q.down(i, moved)
	}
}

// setTimer sets the timer for the first entry, unless it is set for an earlier time. Usually nothing
// is due when it fires, because entries are set to later times again and again.
func (q *Queue[T]) setTimer() {
	due := q.base.Add(q.heap[0].due)
	if !q.at.IsZero() && !due.Before(q.at) {
		return
	}
	q.at = due
	if left := time.Until(due); q.timer == nil {
		q.timer = time.AfterFunc(left, q.fire)
	} else {
		q.timer.Reset(left)
	}
}

// fire runs when the timer fires.
func (q *Queue[T]) fire() {
	for _, e := range q.due() {
		e.Fire()
	}
}

// due takes the entries out whose time has come, and sets the timer for the others.
func (q *Queue[T]) due() (due []T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.at = time.Time{}
	now := time.Since(q.base)
	for len(q.heap) > 0 && q.heap[0].due <= now {
		e := q.heap[0].entry
		due = append(due, e)
		q.removeLocked(e)
	}
	if len(q.heap) > 0 {
		q.setTimer()
	}
	return due
}

// up stores an entry at i, or closer to the front.
func (q *Queue[T]) up(i int, t timed[T]) {
	for i > 0 {
		parent := (i - 1) / 2
		if q.heap[parent].due <= t.due {
			break
		}
		q.put(i, q.heap[parent])
		i = parent
	}
	q.put(i, t)
}

// down stores an entry at i, or farther from the front.
func (q *Queue[T]) down(i int, t timed[T]) {
	for {
		child := 2*i + 1
		if child >= len(q.heap) {
			break
		}
		if right := child + 1; right < len(q.heap) && q.heap[right].due < q.heap[child].due {
			child = right
		}
		if t.due <= q.heap[child].due {
			break
		}
		q.put(i, q.heap[child])
		i = child
	}
	q.put(i, t)
}

func (q *Queue[T]) put(i int, t timed[T]) {
	q.heap[i] = t
	*t.entry.Place() = int32(i + 1)
}
