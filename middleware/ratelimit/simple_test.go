package ratelimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/observe"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// A scriptedLimiter decides in this process, always alike.
type scriptedLimiter struct {
	decision limit.Decision
	err      error
	calls    []int64 // costs
}

func (l *scriptedLimiter) InProcess() {}

func (l *scriptedLimiter) Take(_ context.Context, _ limit.Key, take limit.Take) (limit.Decision, error) {
	l.calls = append(l.calls, take.Cost)
	return l.decision, l.err
}

// TestNew_DecidesAlikeWithAndWithoutObserve compares the short path of limits without Observe with the
// path of all others.
func TestNew_DecidesAlikeWithAndWithoutObserve(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	denied := limit.Decision{Limit: 3, RetryAfter: time.Second, Reason: limit.BurstExceeded, Policy: "p"}
	for name, tt := range map[string]struct {
		closed   bool // the connection
		limiter  scriptedLimiter
		fallback *scriptedLimiter
		cost     int64
		failOpen bool
		want     string // what the error contains; "" if there is none
	}{
		"admitted":                    {limiter: scriptedLimiter{decision: limit.Decision{Allowed: true}}, cost: 2},
		"denied":                      {limiter: scriptedLimiter{decision: denied}, cost: 2, want: "rate limit exceeded: 2 of 3, burst"},
		"free":                        {limiter: scriptedLimiter{decision: denied}},
		"negative cost":               {limiter: scriptedLimiter{decision: denied}, cost: -1, want: "Cost returned -1"},
		"fails":                       {limiter: scriptedLimiter{err: errors.New("broken")}, cost: 1, want: "broken"},
		"fails open":                  {limiter: scriptedLimiter{err: errors.New("broken")}, cost: 1, failOpen: true},
		"fallback admits":             {limiter: scriptedLimiter{err: errors.New("broken")}, fallback: &scriptedLimiter{decision: limit.Decision{Allowed: true}}, cost: 1},
		"fallback denies":             {limiter: scriptedLimiter{err: errors.New("broken")}, fallback: &scriptedLimiter{decision: denied}, cost: 1, want: "rate limit exceeded: 1 of 3"},
		"fallback fails":              {limiter: scriptedLimiter{err: errors.New("broken")}, fallback: &scriptedLimiter{err: errors.New("also broken")}, cost: 1, want: "also broken"},
		"admitted, connection closed": {closed: true, limiter: scriptedLimiter{decision: limit.Decision{Allowed: true}}, cost: 1, want: "context canceled"},
		"denied, connection closed":   {closed: true, limiter: scriptedLimiter{decision: denied}, cost: 1, want: "context canceled"},
		"fails, connection closed":    {closed: true, limiter: scriptedLimiter{err: errors.New("broken")}, cost: 1, failOpen: true, want: "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if tt.closed {
				ctx = canceled
			}
			run := func(observe func(observe.Observation)) (reported []string, calls []int64, err error) {
				limiter := tt.limiter
				opts := ratelimit.Options{
					Key:      ratelimit.KeyPerUserPerType,
					Cost:     func(router.IngressContext) int64 { return tt.cost },
					FailOpen: tt.failOpen,
					Observe:  observe,
				}
				if tt.fallback != nil {
					fallback := *tt.fallback
					opts.Fallback = &fallback
				}
				in, seen := reporting(t, router.IngressContext{Type: "SAY"})
				err = ratelimit.New(&limiter, &opts)(ctx, in)
				for _, err := range seen.errs {
					reported = append(reported, err.Error())
				}
				return reported, limiter.calls, err
			}
			reported, calls, err := run(nil)
			fullReported, fullCalls, fullErr := run(func(observe.Observation) {})
			assert.Equal(t, fullErr, err)
			assert.Equal(t, fullReported, reported)
			assert.Equal(t, fullCalls, calls)
			if tt.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, tt.want)
			}
		})
	}
}
