package router

import "sync"

// A lane runs jobs one at a time, in order, on goroutines that live only while
// there is something to do. Jobs may be pushed by one goroutine.
type lane[T any] struct {
	run    func(T)
	beside func(T) bool // whether a job, once started, lets the next one start
	most   int          // jobs that may wait

	mu      sync.Mutex
	jobs    []T
	running bool
	full    chan struct{} // closed when a job was taken; nil if nobody waits for that
}

// push adds a job. It waits while the lane is full.
func (l *lane[T]) push(job T) {
	l.mu.Lock()
	for len(l.jobs) >= l.most {
		full := make(chan struct{})
		l.full = full
		l.mu.Unlock()
		<-full
		l.mu.Lock()
	}
	l.jobs = append(l.jobs, job)
	start := !l.running
	l.running = true
	l.mu.Unlock()
	if start {
		go l.loop()
	}
}

func (l *lane[T]) loop() {
	for {
		job, ok := l.next()
		if !ok {
			return
		}
		if l.beside(job) {
			l.yield()
			l.run(job)
			return
		}
		l.run(job)
	}
}

// next takes the first job. Without one, the lane stops.
func (l *lane[T]) next() (job T, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.jobs) == 0 {
		l.running = false
		l.jobs = nil
		return job, false
	}
	job = l.jobs[0]
	var zero T
	l.jobs[0] = zero
	l.jobs = l.jobs[1:]
	if l.full != nil {
		close(l.full)
		l.full = nil
	}
	return job, true
}

// yield lets another goroutine go on with the lane.
func (l *lane[T]) yield() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.jobs) == 0 {
		l.running = false
		return
	}
	go l.loop()
}
