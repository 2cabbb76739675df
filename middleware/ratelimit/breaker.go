package ratelimit

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
)

// errOpen represents the errors that opened the breaker.
var errOpen = errors.New("ratelimit: the breaker is open: the limiter failed several times in a row")

const (
	breakerFailures = 5                      // consecutive failures that open the breaker
	breakerPause    = 250 * time.Millisecond // until the next attempt, plus up to half of it at random
)

// A breaker bounds the duration of a limiter's calls, and rejects calls while the limiter
// fails. While it is open, one call at a time probes the limiter; the others return errOpen
// without waiting.
type breaker struct {
	limiter limit.Limiter
	timeout time.Duration
	changed func(open bool) // called with mu held

	mu       sync.Mutex
	failures int       // consecutive; the breaker is open from breakerFailures on
	retryAt  time.Time // time of the next probe if the breaker is open
}

// withBreaker wraps a limiter that can fail. A limiter in this process cannot.
func withBreaker(l limit.Limiter, timeout time.Duration, changed func(open bool)) limit.Limiter {
	if inProcess, ok := l.(limit.InProcess); ok {
		return inProcess
	}
	return &breaker{limiter: l, timeout: timeout, changed: changed}
}

// Consume calls the limiter unless the breaker is open.
func (b *breaker) Consume(ctx context.Context, key limit.Key, cost int64) (limit.Decision, error) {
	return b.Reserve(ctx, key, cost, 0)
}

// Reserve calls the limiter unless the breaker is open. The limiter must be a limit.Reserver
// if maxWait is not 0.
func (b *breaker) Reserve(ctx context.Context, key limit.Key, cost int64, maxWait time.Duration) (limit.Decision, error) {
	if !b.ready() {
		return limit.Decision{}, errOpen
	}
	bounded, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	d, err := consume(bounded, b.limiter, key, cost, maxWait)
	b.record(err != nil && ctx.Err() == nil, err == nil)
	if err != nil {
		return limit.Decision{}, err
	}
	return d, nil
}

// ready reports whether the caller may call the limiter. If a probe is due, the caller makes
// it, and the next one is scheduled.
func (b *breaker) ready() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < breakerFailures {
		return true
	}
	if time.Now().Before(b.retryAt) {
		return false
	}
	b.scheduleProbe()
	return true
}

// scheduleProbe must be called with mu held.
func (b *breaker) scheduleProbe() {
	b.retryAt = time.Now().Add(breakerPause + rand.N(breakerPause/2))
}

// record counts the outcome of a call. A call that its caller canceled is neither a failure
// nor a success.
func (b *breaker) record(failed, succeeded bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case succeeded:
		if b.failures >= breakerFailures {
			b.changed(false)
		}
		b.failures = 0
	case failed:
		if b.failures++; b.failures == breakerFailures {
			b.scheduleProbe()
			b.changed(true)
		}
	}
}
