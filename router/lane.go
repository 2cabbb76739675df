package router

import "sync"

// A lane starts jobs one at a time, in order, on goroutines that live only while
// there is something to do.
type lane[T any] struct {
	run  func(T)
	next func() // called before another job follows on the same goroutine; may be nil
	last func() // called when none does; may be nil
	most int    // jobs that may wait
	held *held[T]

	workers  *workers
	loopFunc func() // the method value, made once so that starting it allocates nothing

	mu      sync.Mutex
	jobs    []T
	head    int           // of jobs: those before it have been taken
	coming  int           // goroutines on their way to the first job
	turn    uint64        // of the job that was taken last
	blocked bool          // that job runs, and lets no other start
	full    chan struct{} // closed when a job was taken; nil if nobody waits for that
}

// held bounds the memory that the waiting jobs of a lane hold.
type held[T any] struct {
	size   func(T) int64
	max    int64           // bytes of this lane's waiting jobs
	budget *inboundBudget  // of all lanes
	ended  <-chan struct{} // closed when waiting for room is pointless

	bytes   int64 // of the jobs that wait
	counted int64 // of these, in the budget
}

// push adds a job. It waits while the lane is full.
func (l *lane[T]) push(job T) {
	l.queue(job)
	if l.claim() {
		l.start()
	}
}

// queue is push, but the job may start only after a claim.
func (l *lane[T]) queue(job T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waitForRoom()
	if h := l.held; h != nil {
		size := h.size(job)
		h.bytes += size
		if l.head < len(l.jobs) {
			h.counted += size
			h.budget.add(size)
		}
	}
	l.jobs = append(l.jobs, job)
}

// awaitRoom waits while the lane is full.
func (l *lane[T]) awaitRoom() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waitForRoom()
}

// waitForRoom must be called with the lock held, which it lets go meanwhile.
func (l *lane[T]) waitForRoom() {
	for {
		var ended, room <-chan struct{}
		own := len(l.jobs)-l.head >= l.most
		if h := l.held; h != nil && l.head < len(l.jobs) {
			ended = h.ended
			own = own || h.bytes >= h.max
			if !own && h.budget.exceeded() {
				room = h.budget.room()
			}
		}
		if !own && room == nil {
			return
		}
		if l.full == nil {
			l.full = make(chan struct{})
		}
		full := l.full
		l.mu.Unlock()
		select {
		case <-full:
		case <-room:
		case <-ended:
			l.mu.Lock()
			return
		}
		l.mu.Lock()
	}
}

// add is push, but it never waits. Any goroutine may call it.
func (l *lane[T]) add(job T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs = append(l.jobs, job)
	l.send()
}

// claim reports whether the first job wants a goroutine. Whoever claims it must call loop or
// start.
func (l *lane[T]) claim() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claimLocked()
}

func (l *lane[T]) claimLocked() bool {
	if l.blocked || l.coming > 0 || l.head == len(l.jobs) {
		return false
	}
	l.coming++
	return true
}

// send sends a goroutine for the first job, unless one is coming or the job must
// wait.
func (l *lane[T]) send() {
	if l.claimLocked() {
		l.start()
	}
}

// start calls loop on another goroutine.
func (l *lane[T]) start() { l.workers.start(l.loopFunc) }

// loop takes jobs until there is none to take.
func (l *lane[T]) loop() {
	runs, turn := false, uint64(0)
	defer func() {
		if runs { // a job has called runtime.Goexit
			l.abandoned(turn)
		}
	}()
	l.mu.Lock()
	l.coming--
	for !l.blocked && l.head < len(l.jobs) {
		job := l.take()
		l.turn++
		turn, l.blocked = l.turn, true
		l.mu.Unlock()
		runs = true
		l.run(job)
		runs = false
		l.mu.Lock()
		if l.turn == turn {
			l.blocked = false
		}
		if l.next != nil && l.head < len(l.jobs) {
			l.next()
		}
	}
	l.mu.Unlock()
	if l.last != nil {
		l.last()
	}
}

// letGo lets the next job start beside the one that calls it, at most once. It sends a
// goroutine, which is too late if the job is done at once: then the job's own takes the next,
// too, and most jobs need none of their own.
func (l *lane[T]) letGo() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocked = false
	l.send()
}

// abandoned is what loop cannot do any more, because its goroutine ends.
func (l *lane[T]) abandoned(turn uint64) {
	l.mu.Lock()
	if l.turn == turn {
		l.blocked = false
	}
	l.send()
	l.mu.Unlock()
	if l.last != nil {
		l.last()
	}
}

// keptJobs is how much room an idle lane keeps.
const keptJobs = 8

func (l *lane[T]) take() T {
	var zero T
	job := l.jobs[l.head]
	l.jobs[l.head] = zero
	l.head++
	if l.head == len(l.jobs) {
		l.head, l.jobs = 0, l.jobs[:0]
		if cap(l.jobs) > keptJobs {
			l.jobs = nil
		}
	}
	if l.full != nil {
		close(l.full)
		l.full = nil
	}
	if l.held != nil {
		l.held.release(job, l.head == len(l.jobs))
	}
	return job
}

// release uncounts a job that was taken. empty says that it was the last one that waited.
func (h *held[T]) release(job T, empty bool) {
	size := h.size(job)
	h.bytes -= size
	uncounted := min(size, h.counted)
	if empty {
		uncounted = h.counted
	}
	h.counted -= uncounted
	h.budget.release(uncounted)
}
