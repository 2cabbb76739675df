package router

import "sync"

// A lane starts jobs one at a time, in order, on goroutines that live only while
// there is something to do.
type lane[T any] struct {
	run    func(T)
	beside func(T) bool // whether a job, once started, lets the next one start
	next   func()       // called before another job follows on the same goroutine; may be nil
	last   func()       // called when none does; may be nil
	most   int          // jobs that may wait

	workers  *workers
	loopFunc func() // the method value, made once so that starting it allocates nothing

	mu      sync.Mutex
	jobs    []T
	head    int           // of jobs: those before it have been taken
	coming  int           // goroutines on their way to the first job
	blocked bool          // a job runs that lets no other start
	full    chan struct{} // closed when a job was taken; nil if nobody waits for that
}

// push adds a job. It waits while the lane is full, and is for one goroutine.
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
	for len(l.jobs)-l.head >= l.most {
		full := make(chan struct{})
		l.full = full
		l.mu.Unlock()
		<-full
		l.mu.Lock()
	}
	l.jobs = append(l.jobs, job)
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

// loop takes jobs until there is none to take. Before a job that others may run
// beside, it sends a goroutine for the next one, which is too late if the job is
// done at once: then this goroutine takes that, too, and most jobs need none of
// their own.
func (l *lane[T]) loop() {
	runs, blocks := false, false // a job; it lets no other start
	defer func() {
		if runs { // it has called runtime.Goexit
			l.abandoned(blocks)
		}
	}()
	l.mu.Lock()
	l.coming--
	for !l.blocked && l.head < len(l.jobs) {
		job := l.take()
		blocks = !l.beside(job)
		l.blocked = blocks
		l.send()
		l.mu.Unlock()
		runs = true
		l.run(job)
		runs = false
		l.mu.Lock()
		if blocks {
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

// abandoned is what loop cannot do any more, because its goroutine ends.
func (l *lane[T]) abandoned(blocks bool) {
	l.mu.Lock()
	if blocks {
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
	return job
}
