package executor

import (
	"slices"
	"sync"
	"time"
)

// A SerialQueue starts jobs one at a time, in order. The exported fields must be set
// before the first job. It is small, because every connection has one.
type SerialQueue[T any] struct {
	Owner  Owner[T]
	Config *Config

	mu       sync.Mutex
	head     int32 // of jobs: those before it have been taken
	jobs     []T
	taken    chan struct{} // closed when a job is taken or removed; nil if nothing waits for it
	bytes    int64         // of the jobs that wait
	counted  int64         // of these, in Config.Budget
	turn     uint32        // of the job that was taken last; it may overflow
	starting bool          // a goroutine was started and has not taken a job
	blocked  bool          // the job that was taken last runs, and lets no other start
}

// An Owner runs the jobs of a queue.
type Owner[T any] interface {
	// RunJob runs a job.
	RunJob(T)

	// AfterJob is called after a job. If another one follows on the same goroutine, next is set and
	// the queue's lock is held.
	AfterJob(next bool)

	// JobBytes returns the size of a job. It is always the same for one job.
	JobBytes(T) int64

	// Ended returns a channel. When that is closed, adding jobs does not wait for memory. It may be nil.
	Ended() <-chan struct{}
}

// A Config is what queues share. Its fields must not change.
type Config struct {
	MaxWaiting int         // jobs that may wait in one queue
	MaxBytes   int64       // of the jobs that wait in one queue; only used with Budget
	Budget     *ByteBudget // of the bytes in all queues; nil if memory is not bounded
	Pool       *Pool
}

// EnqueueWait adds a job and starts it in its turn. It waits while the queue is full.
func (q *SerialQueue[T]) EnqueueWait(job T) {
	q.Enqueue(job, time.Time{})
	if q.TryStart() {
		q.Start()
	}
}

// Enqueue adds a job, which may start only after TryStart. It waits while the queue is full, but not
// longer than until deadline, unless that is the zero Time: then it returns false, and the job is not
// in the queue.
func (q *SerialQueue[T]) Enqueue(job T, deadline time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	hasRoom := q.waitForRoomLocked(deadline)
	if hasRoom {
		q.addBytes(job, q.waiting() > 0)
		q.jobs = append(q.jobs, job)
	}
	return hasRoom
}

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
		q.removeBytes(job)
	}
	if len(kept) < len(q.jobs) {
		clear(q.jobs[len(kept):])
		q.jobs = kept
		q.afterRemoval()
	}
	return removed
}

// EnqueueNow adds a job and starts it in its turn, even if the queue is full. The queue
// must not have a Budget.
func (q *SerialQueue[T]) EnqueueNow(job T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.jobs = append(q.jobs, job)
	q.startNextLocked()
}

func (q *SerialQueue[T]) waiting() int { return len(q.jobs) - int(q.head) }

// waitForRoomLocked waits while the queue is full, and reports true; or until deadline, unless that is the
// zero Time, and reports false. It must be called with the lock held, which it releases while it waits.
func (q *SerialQueue[T]) waitForRoomLocked(deadline time.Time) bool {
	var expired <-chan time.Time // nil until it has to wait
	for {
		full := q.waiting() >= q.Config.MaxWaiting
		var ended, budget <-chan struct{}
		if shared := q.Config.Budget; shared != nil && q.waiting() > 0 {
			full = full || q.bytes >= q.Config.MaxBytes
			if !full && shared.exceeded() {
				budget = shared.Available()
			}
		}
		if !full && budget == nil {
			return true
		}
		if q.Config.Budget != nil && q.waiting() > 0 {
			ended = q.Owner.Ended()
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
// Run or Start.
func (q *SerialQueue[T]) TryStart() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tryStart()
}

func (q *SerialQueue[T]) tryStart() bool {
	if q.blocked || q.starting || q.waiting() == 0 {
		return false
	}
	q.starting = true
	return true
}

// startNextLocked starts a goroutine for the first job, unless one is on its way or the job has to
// wait.
func (q *SerialQueue[T]) startNextLocked() {
	if q.tryStart() {
		q.Start()
	}
}

// Start calls Run on another goroutine.
func (q *SerialQueue[T]) Start() { q.Config.Pool.Start(q) }

// Run runs jobs until no job may start.
func (q *SerialQueue[T]) Run() {
	q.mu.Lock()
	q.starting = false
	if q.blocked || q.waiting() == 0 {
		q.mu.Unlock()
		q.Owner.AfterJob(false)
		return
	}
	job := q.take()
	q.claimLocked()
	q.mu.Unlock()
	q.RunClaimed(job)
}

// Claim reports whether a job that is not in the queue may run at once. The caller must then call
// RunClaimed or Unclaim. Only one goroutine at a time may call Claim and add jobs, or jobs would not be
// in order.
func (q *SerialQueue[T]) Claim() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.blocked || q.starting || q.waiting() > 0 {
		return false
	}
	q.claimLocked()
	return true
}

// claimLocked blocks the queue for a job that begins.
func (q *SerialQueue[T]) claimLocked() {
	q.turn++
	q.blocked = true
}

// Unclaim puts a job for which Claim was called into the queue, before all others, and runs it on
// another goroutine.
func (q *SerialQueue[T]) Unclaim(job T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.blocked = false
	q.addBytes(job, false)
	q.jobs = slices.Insert(q.jobs, int(q.head), job)
	q.startNextLocked()
}

// RunClaimed runs a job for which Claim was called, and then jobs until no job may start.
func (q *SerialQueue[T]) RunClaimed(job T) {
	turn, running := q.turn, true // no other job takes a turn while this one blocks the queue
	Do(func() {
		for {
			q.Owner.RunJob(job)
			running = false
			q.mu.Lock()
			if q.turn == turn {
				q.blocked = false
			}
			if q.waiting() > 0 {
				q.Owner.AfterJob(true)
			}
			if q.blocked || q.waiting() == 0 {
				break
			}
			job = q.take()
			q.claimLocked()
			turn, running = q.turn, true
			q.mu.Unlock()
		}
		q.mu.Unlock()
		q.Owner.AfterJob(false)
	}, func() {
		if running {
			q.abandon(turn)
		}
	})
}

// Yield lets the next job start concurrently with the one that calls it. A job may call it
// once. If the calling job ends before the goroutine that Yield starts has been scheduled,
// Run takes the next job on the goroutine that it has.
func (q *SerialQueue[T]) Yield() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.blocked = false
	q.startNextLocked()
}

// abandon replaces the rest of Run after a job has called runtime.Goexit.
func (q *SerialQueue[T]) abandon(turn uint32) {
	q.mu.Lock()
	if q.turn == turn {
		q.blocked = false
	}
	q.startNextLocked()
	q.mu.Unlock()
	q.Owner.AfterJob(false)
}

// keptCapacity is how many jobs an idle queue keeps memory for.
const keptCapacity = 8

func (q *SerialQueue[T]) take() T {
	var zero T
	job := q.jobs[q.head]
	q.jobs[q.head] = zero
	q.head++
	q.afterRemoval()
	q.removeBytes(job)
	return job
}

// afterRemoval resets an empty queue and wakes those that wait for room.
func (q *SerialQueue[T]) afterRemoval() {
	if int(q.head) == len(q.jobs) {
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

// addBytes counts a job that begins to wait. behind says that it waits behind another one.
func (q *SerialQueue[T]) addBytes(job T, behind bool) {
	if q.Config.Budget == nil {
		return
	}
	size := q.Owner.JobBytes(job)
	q.bytes += size
	if behind {
		q.counted += size
		q.Config.Budget.Add(size)
	}
}

// removeBytes subtracts a job that was taken. The job behind it, which becomes the first one, may
// stay counted until it is taken.
func (q *SerialQueue[T]) removeBytes(job T) {
	if q.Config.Budget == nil {
		return
	}
	size := q.Owner.JobBytes(job)
	q.bytes -= size
	uncounted := min(size, q.counted)
	q.counted -= uncounted
	q.Config.Budget.Remove(uncounted)
}
