package ratelimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/fakelimiter"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/observe"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// TestNew_DecidesAlikeWithAndWithoutObserve compares the short path of limits without Observe with the
// path of all others.
func TestNew_DecidesAlikeWithAndWithoutObserve(t *testing.T) {
	type fake = fakelimiter.Limiter
	broken := errors.New("broken")
	admits := limit.Decision{Allowed: true}
	denies := limit.Decision{Limit: 3, RetryAfter: time.Second, Reason: limit.BurstExceeded, Policy: "p"}
	const reported = `ratelimit: the limit "chat" could not decide: broken`
	for name, tt := range map[string]struct {
		closed   bool // the connection
		limiter  *fake
		fallback *fake
		cost     int64
		failOpen bool
		want     string // what the error contains; "" if there is none
		reported string // what OnError receives; "" if nothing
	}{
		"admitted":                    {limiter: &fake{Decision: admits}, cost: 2},
		"denied":                      {limiter: &fake{Decision: denies}, cost: 2, want: "rate limit exceeded: cost 2, capacity 3, policy \"p\", burst"},
		"free":                        {limiter: &fake{Decision: denies}},
		"negative cost":               {limiter: &fake{Decision: denies}, cost: -1, want: `ratelimit: Cost returned -1 for "SAY"; it must not be negative`},
		"fails":                       {limiter: &fake{Err: broken}, cost: 1, want: "UNAVAILABLE: limits cannot be checked: broken"},
		"fails open":                  {limiter: &fake{Err: broken}, cost: 1, failOpen: true, reported: reported},
		"fallback admits":             {limiter: &fake{Err: broken}, fallback: &fake{Decision: admits}, cost: 1, reported: reported},
		"fallback denies":             {limiter: &fake{Err: broken}, fallback: &fake{Decision: denies}, cost: 1, want: "rate limit exceeded: cost 1, capacity 3", reported: reported},
		"fallback fails":              {limiter: &fake{Err: broken}, fallback: &fake{Err: errors.New("also broken")}, cost: 1, want: "also broken"},
		"fallback is not asked":       {limiter: &fake{Decision: denies}, fallback: &fake{Decision: admits}, cost: 1, want: "rate limit exceeded"},
		"admitted, connection closed": {closed: true, limiter: &fake{Decision: admits}, cost: 1, want: "context canceled"},
		"denied, connection closed":   {closed: true, limiter: &fake{Decision: denies}, cost: 1, want: "context canceled"},
		"fails, connection closed":    {closed: true, limiter: &fake{Err: broken}, cost: 1, failOpen: true, want: "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			for path, observer := range map[string]func(observe.Observation){"short": nil, "observed": func(observe.Observation) {}} {
				ctx, cancel := context.WithCancel(t.Context())
				if tt.closed {
					cancel()
				}
				tt.limiter.Calls = nil
				opts := ratelimit.Options{
					Name: "chat", Key: ratelimit.KeyPerUserPerType, FailOpen: tt.failOpen, Observe: observer,
					Cost: func(router.IngressContext) int64 { return tt.cost },
				}
				if tt.fallback != nil {
					opts.Fallback = tt.fallback
				}
				in, seen := reporting(t, router.IngressContext{Type: "SAY"})
				err := ratelimit.New(fakelimiter.InProcess{Limiter: tt.limiter}, &opts)(ctx, in)
				cancel()
				if tt.want == "" {
					assert.NoError(t, err, path)
				} else {
					assert.ErrorContains(t, err, tt.want, path)
				}
				if tt.reported == "" {
					assert.Empty(t, seen.errs, path)
				} else if assert.Len(t, seen.errs, 1, path) {
					assert.EqualError(t, seen.errs[0], tt.reported, path)
				}
				if tt.cost > 0 && assert.Len(t, tt.limiter.Calls, 1, path) {
					assert.Equal(t, tt.cost, tt.limiter.Calls[0].Take.Cost, path)
				}
			}
		})
	}
}
