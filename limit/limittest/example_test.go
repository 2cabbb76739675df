package limittest_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/limittest"
)

// A Limiter is the simplest correct limiter. Its memory grows with the number of keys.
type Limiter struct {
	units adapter.Units
	now   func() time.Duration

	mu     sync.Mutex
	fullAt map[limit.Key]int64 // when a bucket is full, in units
}

// NewLimiter returns a limiter that reads the time from now.
func NewLimiter(p limit.Policy, now func() time.Duration) *Limiter {
	return &Limiter{units: adapter.UnitsOf(p), now: now, fullAt: map[limit.Key]int64{}}
}

// Check returns an error unless a Take is that of limit.Consume.
func (l *Limiter) Check(take limit.Take) error { return take.ValidatePlain() }

// Take takes the cost from key's bucket, or nothing.
func (l *Limiter) Take(_ context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	if err := l.Check(take); err != nil {
		return limit.Decision{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now().Microseconds() * l.units.PerMicro()
	missing := min(max(l.fullAt[key]-now, 0), l.units.Full()) // more only if the clock went backwards
	have, costUnits := l.units.Full()-missing, l.units.CostUnits(take.Cost)
	if costUnits <= have {
		l.fullAt[key] = now + missing + costUnits
	}
	return l.units.Decision(have, costUnits), nil
}

// A test calls Run of each case. This example calls Check, which returns the error.
func ExampleCases() {
	var clock time.Duration
	harness := limittest.Harness{
		New: func(p limit.Policy) limit.Limiter {
			return NewLimiter(p, func() time.Duration { return clock })
		},
		Sleep: func(d time.Duration) { clock += d },
	}
	broken := 0
	for _, c := range limittest.Cases() {
		if err := c.Check(harness); err != nil {
			broken++
			fmt.Printf("%s: %v\nrule: %s\n", c.Name, err, c.Rule)
		}
	}
	fmt.Println("broken rules:", broken)
	// Output: broken rules: 0
}
