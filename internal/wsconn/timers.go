package wsconn

import (
	"sync"
	"time"
)

// A timerQueue calls Conn.tick when a connection's time has come, with one timer for all
// connections. It is a binary heap with the next time first. The zero timerQueue is empty.
//
// Lock order: Conn.mu comes before timerQueue.mu.
type timerQueue struct {
	mu    sync.Mutex
	heap  []timerEntry
	timer *time.Timer
	at    time.Time // what the timer is set for; the zero Time if it is not set
	base  time.Time // of the times in the heap
}

type timerEntry struct {
	due  time.Duration // since base
	conn *Conn
}

// set makes the queue call c.tick after d, instead of when it was set before.
func (q *timerQueue) set(c *Conn, d time.Duration) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.base.IsZero() {
		q.base = now
	}
	e := timerEntry{now.Sub(q.base) + d, c}
	i := int(c.timerPlace) - 1
	switch {
	case i < 0:
		q.heap = append(q.heap, timerEntry{})
		q.up(len(q.heap)-1, e)
	case e.due < q.heap[i].due:
		q.up(i, e)
	default:
		q.down(i, e)
	}
	q.setTimer()
}

// stop takes c out of the queue. A tick that has begun may still run.
func (q *timerQueue) stop(c *Conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(c)
}

// remove must be called with the lock held.
func (q *timerQueue) remove(c *Conn) {
	i := int(c.timerPlace) - 1
	if i < 0 {
		return
	}
	c.timerPlace = 0
	last := len(q.heap) - 1
	moved := q.heap[last]
	q.heap[last] = timerEntry{}
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

// setTimer sets the timer for the first entry, unless it is set for an earlier time. Usually
// nothing is due when it fires, because connections have been active meanwhile.
func (q *timerQueue) setTimer() {
	due := q.base.Add(q.heap[0].due)
	if !q.at.IsZero() && !due.Before(q.at) {
		return
	}
	q.at = due
	if left := time.Until(due); q.timer == nil {
		q.timer = time.AfterFunc(left, q.expire)
	} else {
		q.timer.Reset(left)
	}
}

// expire runs when the timer fires.
func (q *timerQueue) expire() {
	for _, c := range q.due() {
		c.tick()
	}
}

// due takes the connections out whose time has come, and sets the timer for the others.
func (q *timerQueue) due() (due []*Conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.at = time.Time{}
	now := time.Since(q.base)
	for len(q.heap) > 0 && q.heap[0].due <= now {
		c := q.heap[0].conn
		due = append(due, c)
		q.remove(c)
	}
	if len(q.heap) > 0 {
		q.setTimer()
	}
	return due
}

// up stores an entry at i, or closer to the front.
func (q *timerQueue) up(i int, e timerEntry) {
	for i > 0 {
		parent := (i - 1) / 2
		if q.heap[parent].due <= e.due {
			break
		}
		q.put(i, q.heap[parent])
		i = parent
	}
	q.put(i, e)
}

// down stores an entry at i, or farther from the front.
func (q *timerQueue) down(i int, e timerEntry) {
	for {
		child := 2*i + 1
		if child >= len(q.heap) {
			break
		}
		if right := child + 1; right < len(q.heap) && q.heap[right].due < q.heap[child].due {
			child = right
		}
		if e.due <= q.heap[child].due {
			break
		}
		q.put(i, q.heap[child])
		i = child
	}
	q.put(i, e)
}

func (q *timerQueue) put(i int, e timerEntry) {
	q.heap[i] = e
	e.conn.timerPlace = int32(i + 1)
}
