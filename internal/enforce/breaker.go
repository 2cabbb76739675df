package enforce

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/random"
)

// errOpen represents the errors that opened the breaker.
var errOpen = errors.New("limit: the breaker is open: the limiter failed several times in a row")

const (
	breakerFailures = 5                      // consecutive failures that open the breaker
	breakerPause    = 250 * time.Millisecond // until the next attempt, plus up to half of it at random
)

// A Breaker bounds the duration of calls of a limiter or a semaphore, and rejects calls while
// they fail. While it is open, one call at a time probes; the others return errOpen without
// waiting.
type Breaker struct {
	Timeout time.Duration
	Changed func(open bool) // called with mu held

	failures atomic.Int32 // consecutive; the breaker is open from breakerFailures on; written with mu held

	mu      sync.Mutex
	retryAt time.Time // time of the next probe if the breaker is open
}

// Call calls f unless the breaker is open. A call that its caller canceled is neither a failure
// nor a success.
func (b *Breaker) Call(ctx context.Context, f func(context.Context) error) error {
	if !b.ready() {
		return errOpen
	}
	bounded, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	err := f(bounded)
	switch {
	case err == nil:
		b.succeeded()
	case ctx.Err() == nil:
		b.failed()
	}
	return err
}

// ready reports whether the caller may call. If a probe is due, the caller makes it, and the
// next one is scheduled.
func (b *Breaker) ready() bool {
	if b.failures.Load() < breakerFailures {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures.Load() < breakerFailures {
		return true
	}
	if time.Now().Before(b.retryAt) {
		return false
	}
	b.scheduleProbeLocked()
	return true
}

func (b *Breaker) scheduleProbeLocked() {
	b.retryAt = time.Now().Add(breakerPause + random.N(breakerPause/2))
}

func (b *Breaker) succeeded() {
	if b.failures.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures.Swap(0) >= breakerFailures {
		b.Changed(false)
	}
}

func (b *Breaker) failed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.failures.Load()
	if n < breakerFailures { // more failures change nothing, and must not overflow
		b.failures.Store(n + 1)
	}
	if n+1 == breakerFailures {
		b.scheduleProbeLocked()
		b.Changed(true)
	}
}
