package ratelimit

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A Local is a [Limiter] that decides in this process, at once and without
// failing. No deadline and no breaker is put around it.
type Local interface {
	Limiter
	Local()
}

// errOpen stands for the errors that opened the breaker.
var errOpen = errors.New("ratelimit: the limiter has failed several times; it is asked again soon")

const (
	breakerFailures = 5                      // in a row open the breaker
	breakerPause    = 250 * time.Millisecond // and up to half as much again, until the next try
)

// A guard bounds the calls of a limiter in time, and stops calling it while it
// fails. One call at a time tries whether it is back; nobody else waits.
type guard struct {
	limiter Limiter
	timeout time.Duration
	changed func(open bool) // called with the lock held

	mu       sync.Mutex
	failures int       // in a row
	retryAt  time.Time // when the next try is due, if the breaker is open
}

// guarded puts a guard around a limiter that needs one.
func guarded(l Limiter, timeout time.Duration, changed func(open bool)) Limiter {
	if local, ok := l.(Local); ok {
		return local
	}
	return &guard{limiter: l, timeout: timeout, changed: changed}
}

// Consume asks the limiter, unless the breaker is open.
func (g *guard) Consume(ctx context.Context, key Key, cost int64) (Decision, error) {
	return g.Reserve(ctx, key, cost, 0)
}

// Reserve asks the limiter, which must be a Reserver if maxWait is not 0, unless the breaker
// is open.
func (g *guard) Reserve(ctx context.Context, key Key, cost int64, maxWait time.Duration) (Decision, error) {
	if !g.ready() {
		return Decision{}, errOpen
	}
	bounded, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	d, err := ask(bounded, g.limiter, key, cost, maxWait)
	g.record(err != nil && ctx.Err() == nil, err == nil)
	if err != nil {
		return Decision{}, err
	}
	return d, nil
}

// ready reports whether the limiter may be asked. If a try is due, whoever asks
// makes it.
func (g *guard) ready() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failures < breakerFailures {
		return true
	}
	if time.Now().Before(g.retryAt) {
		return false
	}
	g.pause()
	return true
}

func (g *guard) pause() {
	g.retryAt = time.Now().Add(breakerPause + rand.N(breakerPause/2))
}

// record counts. A call that its caller gave up is neither a failure nor a
// success.
func (g *guard) record(failed, succeeded bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case succeeded:
		if g.failures >= breakerFailures {
			g.changed(false)
		}
		g.failures = 0
	case failed:
		if g.failures++; g.failures == breakerFailures {
			g.pause()
			g.changed(true)
		}
	}
}
