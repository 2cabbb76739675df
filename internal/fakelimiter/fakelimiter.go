// Package fakelimiter has a limiter for tests of what calls limiters: one that fails, hangs, is slow, or
// decides as a test says. Package limittest has one with random faults.
package fakelimiter

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/limit"
)

// A Limiter decides as its fields say. A test may change them between calls. The zero value denies.
type Limiter struct {
	// Do decides, such as the Take of another limiter. If nil, Decision is every decision.
	Do       func(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error)
	Decision limit.Decision

	Err   error                 // returned instead of a decision, if not nil
	Hangs bool                  // a Take returns the error of its context, when that is done
	Fails func(limit.Take) bool // the Takes that Err and Hangs concern; all if nil

	Delay    time.Duration       // before a Take is decided, and after it
	Plain    bool                // it cannot do more than limit.Consume
	Policies []limit.Description // which it describes

	Calls []Call // that it has received, in their order

	mu sync.Mutex // guards Calls while a Take adds one
}

// A Call is a Take of a key.
type Call struct {
	Key  limit.Key
	Take limit.Take
}

// Take implements [limit.Limiter].
func (l *Limiter) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	if err := l.Check(take); err != nil {
		return limit.Decision{}, err
	}
	l.mu.Lock()
	l.Calls = append(l.Calls, Call{key, take})
	l.mu.Unlock()
	_ = rules.Sleep(ctx, l.Delay)
	if err := ctx.Err(); err != nil {
		return limit.Decision{}, err
	}
	if l.Fails == nil || l.Fails(take) {
		if l.Hangs {
			<-ctx.Done()
			return limit.Decision{}, ctx.Err()
		}
		if l.Err != nil {
			return limit.Decision{}, l.Err
		}
	}
	if l.Do == nil {
		return l.Decision, rules.Sleep(ctx, l.Delay)
	}
	d, err := l.Do(ctx, key, take)
	if err != nil {
		return d, err
	}
	return d, rules.Sleep(ctx, l.Delay)
}

// Check returns an error if take is invalid, or too much for a Plain limiter.
func (l *Limiter) Check(take limit.Take) error {
	if l.Plain {
		return take.ValidatePlain()
	}
	return take.Validate()
}

// Describe returns Policies.
func (l *Limiter) Describe() []limit.Description { return l.Policies }

// An InProcess limiter decides in this process: its callers have no breaker and no deadline for it.
type InProcess struct{ *Limiter }

// InProcess marks it.
func (InProcess) InProcess() {}
