package executor

import (
	"sync"
	"time"
)

// A Pool reuses goroutines. A new goroutine begins with a small stack, and growing it to
// what decoding a message takes costs more than the rest of a hand-over; a reused one has
// grown already. The zero Pool is ready to use. It is safe for concurrent use.
type Pool struct {
	mu    sync.Mutex
	users int           // if 0, no goroutine waits
	idle  []chan Runner // of each waiting goroutine, in the order in which they began to wait
	spare int           // the smallest length of idle since the last check
	timer *time.Timer
	armed bool

	_ [64]byte // keeps the pools of an array on different cache lines
}

const (
	maxIdle       = 256
	checkInterval = time.Second
)

// A Runner is what a goroutine runs.
type Runner interface{ Run() }

// A Func is a function as a Runner.
type Func func()

// Run calls the function.
func (f Func) Run() { f() }

// Start calls r.Run on a goroutine. It allocates nothing if a goroutine waits.
func (p *Pool) Start(r Runner) {
	p.mu.Lock()
	n := len(p.idle)
	if n == 0 {
		p.mu.Unlock()
		go p.work(r)
		return
	}
	worker := p.idle[n-1]
	p.idle = p.idle[:n-1]
	p.spare = min(p.spare, n-1)
	p.mu.Unlock()
	worker <- r
}

func (p *Pool) work(r Runner) {
	next := make(chan Runner, 1)
	for r != nil {
		r.Run()
		if !p.wait(next) {
			return
		}
		r = <-next
	}
}

// wait adds a goroutine to those that wait, unless there are enough.
func (p *Pool) wait(next chan Runner) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users == 0 || len(p.idle) == maxIdle {
		return false
	}
	p.idle = append(p.idle, next)
	switch {
	case p.armed:
	case p.timer == nil:
		p.timer = time.AfterFunc(checkInterval, p.check)
	default:
		p.timer.Reset(checkInterval)
	}
	p.armed = true
	return true
}

// check ends the goroutines that were not needed since the last check.
func (p *Pool) check() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(p.spare)
	p.spare = len(p.idle)
	if p.armed = p.spare > 0; p.armed {
		p.timer.Reset(checkInterval)
	}
}

// end ends the n goroutines that have waited longest.
func (p *Pool) end(n int) {
	for _, worker := range p.idle[:n] {
		worker <- nil
	}
	p.idle = append(p.idle[:0], p.idle[n:]...)
}

// Retain adds a user of the pool. Idle goroutines wait only while there are users.
func (p *Pool) Retain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users++
}

// Release undoes Retain.
func (p *Pool) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 {
		p.end(len(p.idle))
		p.spare = 0
	}
}
