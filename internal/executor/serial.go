package executor

import (
	"sync"
	"time"
)

// A SerialQueue starts jobs one at a time, in order. The exported fields must be set
// before the first job, and [SerialQueue.Init] must be called.
type SerialQueue[T any] struct {
	Run        func(T)
	BeforeNext func() // called with the queue's lock before another job follows on the same goroutine; may be nil
	AfterLast  func() // called when no job follows on the same goroutine; may be nil
	MaxWaiting int    // jobs that may wait
	Memory     *Memory[T]
	Pool       *Pool

	loopFunc func() // the method value, stored so that starting it allocates nothing

	mu       sync.Mutex
	jobs     []T
	head     int           // of jobs: those before it have been taken
	starting int           // goroutines that were started and have not taken a job
	turn     uint64        // of the job that was taken last
	blocked  bool          // that job runs, and lets no other start
	taken    chan struct{} // closed when a job is taken or removed; nil if nothing waits for it
}

// Memory bounds the bytes of the jobs that wait in one queue. Its exported fields must be
// set before the first job; the rest is guarded by the queue's lock.
type Memory[T any] struct {
	Size     func(T) int64
	MaxBytes int64           // of the waiting jobs of this queue
	Budget   *ByteBudget     // of all queues
	Ended    <-chan struct{} // when it is closed, adding jobs does not wait; may be nil

	bytes   int64 // of the jobs that wait
	counted int64 // of these, in Budget
}

// Init prepares the queue.
func (q *SerialQueue[T]) Init() { q.loopFunc = q.Loop }

// EnqueueWait adds a job and starts it in its turn. It waits while the queue is full.
func (q *SerialQueue[T]) EnqueueWait(job T) {
	q.Enqueue(job, time.Time{})
	if q.TryStart() {
		q.Start()
	}
}

// Enqueue adds a job, which may start only after TryStart. It waits while the queue is
// full, but not longer than until deadline, unless that is the zero Time: then it returns
// Expired, and the job is not in the queue.
func (q *SerialQueue[T]) Enqueue(job T, deadline time.Time) Position {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.waitForRoom(deadline) {
		return Expired
	}
	position := First
	if q.blocked || q.waiting() > 0 {
		position = Behind
	}
	if q.Memory != nil {
		q.Memory.add(job, q.waiting() > 0)
	}
	q.jobs = append(q.jobs, job)
	return position
}

// A Position is what Enqueue did with a job.
type Position int

// The positions.
const (
	First   Position = iota // no other job delays it
	Behind                  // it waits for another job
	Expired                 // it was not added
)

// Remove removes the waiting jobs for which f returns true, and appends them to removed, in
// order. It calls f with the queue's lock.
func (q *SerialQueue[T]) Remove(removed []T, f func(T) bool) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := q.jobs[:q.head]
	for _, job := range q.jobs[q.head:] {
		if !f(job) {
			kept = append(kept, job)
			continue
		}
		removed = append(removed, job)
		if q.Memory != nil {
			q.Memory.remove(job)
		}
	}
	if len(kept) < len(q.jobs) {
		clear(q.jobs[len(kept):])
		q.jobs = kept
		q.afterRemoval()
	}
	return removed
}

// EnqueueNow adds a job and starts it in its turn, even if the queue is full. The queue
// must not have Memory.
func (q *SerialQueue[T]) EnqueueNow(job T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.jobs = append(q.jobs, job)
	q.startNext()
}

// AwaitRoom waits while the queue is full.
func (q *SerialQueue[T]) AwaitRoom() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waitForRoom(time.Time{})
}

func (q *SerialQueue[T]) waiting() int { return len(q.jobs) - q.head }

// waitForRoom waits while the queue is full, and reports true; or until deadline, unless that is
// the zero Time, and reports false. It must be called with the lock held, which it releases
// while it waits.
func (q *SerialQueue[T]) waitForRoom(deadline time.Time) bool {
	var expired <-chan time.Time // nil until it has to wait
	for {
		full := q.waiting() >= q.MaxWaiting
		var ended, budget <-chan struct{}
		if m := q.Memory; m != nil && q.waiting() > 0 {
			ended = m.Ended
			full = full || m.bytes >= m.MaxBytes
			if !full && m.Budget.exceeded() {
				budget = m.Budget.available()
			}
		}
		if !full && budget == nil {
			return true
		}
		if expired == nil && !deadline.IsZero() {
			timer := time.NewTimer(time.Until(deadline))
			defer timer.Stop()
			expired = timer.C
		}
		if q.taken == nil {
			q.taken = make(chan struct{})
		}
		taken := q.taken
		q.mu.Unlock()
		select {
		case <-taken:
		case <-budget:
		case <-ended:
			q.mu.Lock()
			return true
		case <-expired:
			q.mu.Lock()
			return false
		}
		q.mu.Lock()
	}
}

// TryStart reports whether the first job needs a goroutine. The caller must then call
// Loop or Start.
func (q *SerialQueue[T]) TryStart() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tryStart()
}

func (q *SerialQueue[T]) tryStart() bool {
	if q.blocked || q.starting > 0 || q.waiting() == 0 {
		return false
	}
	q.starting++
	return true
}

// startNext starts a goroutine for the first job, unless one is on its way or the job
// has to wait. It must be called with the lock held.
func (q *SerialQueue[T]) startNext() {
	if q.tryStart() {
		q.Start()
	}
}

// Start calls Loop on another goroutine.
func (q *SerialQueue[T]) Start() { q.Pool.Start(q.loopFunc) }

// Loop runs jobs until no job may start.
func (q *SerialQueue[T]) Loop() {
	running, turn := false, uint64(0)
	defer func() {
		if running { // the job has called runtime.Goexit
			q.abandon(turn)
		}
	}()
	q.mu.Lock()
	q.starting--
	for !q.blocked && q.waiting() > 0 {
		job := q.take()
		q.turn++
		turn, q.blocked = q.turn, true
		q.mu.Unlock()
		running = true
		q.Run(job)
		running = false
		q.mu.Lock()
		if q.turn == turn {
			q.blocked = false
		}
		if q.BeforeNext != nil && q.waiting() > 0 {
			q.BeforeNext()
		}
	}
	q.mu.Unlock()
	if q.AfterLast != nil {
		q.AfterLast()
	}
}

// Yield lets the next job start concurrently with the one that calls it. A job may call it
// once. If the calling job ends before the goroutine that Yield starts has been scheduled,
// Loop takes the next job on the goroutine that it has.
func (q *SerialQueue[T]) Yield() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.blocked = false
	q.startNext()
}

// abandon replaces the rest of Loop after a job has called runtime.Goexit.
func (q *SerialQueue[T]) abandon(turn uint64) {
	q.mu.Lock()
	if q.turn == turn {
		q.blocked = false
	}
	q.startNext()
	q.mu.Unlock()
	if q.AfterLast != nil {
		q.AfterLast()
	}
}

// keptCapacity is how many jobs an idle queue keeps memory for.
const keptCapacity = 8

func (q *SerialQueue[T]) take() T {
	var zero T
	job := q.jobs[q.head]
	q.jobs[q.head] = zero
	q.head++
	q.afterRemoval()
	if q.Memory != nil {
		q.Memory.remove(job)
	}
	return job
}

// afterRemoval resets an empty queue and wakes those that wait for room.
func (q *SerialQueue[T]) afterRemoval() {
	if q.head == len(q.jobs) {
		q.head, q.jobs = 0, q.jobs[:0]
		if cap(q.jobs) > keptCapacity {
			q.jobs = nil
		}
	}
	if q.taken != nil {
		close(q.taken)
		q.taken = nil
	}
}

// add counts a job that begins to wait. behind says that it waits behind another one.
func (m *Memory[T]) add(job T, behind bool) {
	size := m.Size(job)
	m.bytes += size
	if behind {
		m.counted += size
		m.Budget.add(size)
	}
}

// remove subtracts a job that was taken. The job behind it, which becomes the first one, may
// stay counted until it is taken.
func (m *Memory[T]) remove(job T) {
	size := m.Size(job)
	m.bytes -= size
	uncounted := min(size, m.counted)
	m.counted -= uncounted
	m.Budget.remove(uncounted)
}
