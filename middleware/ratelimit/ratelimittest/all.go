package ratelimittest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// All holds [ratelimit.All] of a harness's limiters to what it promises: the contract, and
// that a denial by one costs nothing at the others.
func All(t *testing.T, h Harness) {
	t.Helper()
	perSecond, perDay := ratelimit.PerSecond(2).Named("second"), ratelimit.Per(5, 24*time.Hour).Named("day")
	second, day := h.New(perSecond), h.New(perDay)
	both := ratelimit.All(second, day)
	ann := key("ann")
	for n := range 2 {
		assert.Equal(t, ratelimit.Decision{Allowed: true, Limit: 2, Remaining: int64(1 - n), ResetAfter: time.Duration(n+1) * time.Second / 2}, hit(t, both, ann, 1))
	}
	assert.Equal(t, time.Second/2, hit(t, both, ann, 1).RetryAfter, "the second refuses")
	assert.EqualValues(t, 3, hit(t, day, ann, 0).Remaining, "and the day is not charged")
	h.Sleep(time.Second)
	hit(t, both, ann, 2)
	h.Sleep(time.Second)
	hit(t, both, ann, 1)
	d := hit(t, both, ann, 1)
	assert.Equal(t, []any{false, int64(5)}, []any{d.Allowed, d.Limit}, "the day refuses")
	assert.EqualValues(t, 1, hit(t, second, ann, 0).Remaining, "and the second is not charged")
	h.Sleep(d.RetryAfter)
	assert.True(t, hit(t, both, ann, 1).Allowed, "waiting for the longest is enough")
	assert.Equal(t, ratelimit.Never, hit(t, both, ann, 3).RetryAfter, "the second never holds 3")
	together(t, h)
}

// together has many callers want what one of two limiters refuses.
func together(t *testing.T, h Harness) {
	few, many := h.New(ratelimit.PerHour(10).Named("few")), h.New(ratelimit.PerHour(1000).Named("many"))
	both := ratelimit.All(many, few)
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if hit(t, both, key("eve"), 1).Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 10, allowed.Load())
	assert.EqualValues(t, 990, hit(t, many, key("eve"), 0).Remaining)
}

// WithAnother makes limiters that are [ratelimit.All] of one with the policy that was
// asked for and one that never refuses, for [Cases].
func WithAnother(h Harness) Harness {
	limiter := h.New
	h.New = func(p ratelimit.Policy) ratelimit.Limiter {
		generous := ratelimit.Policy{Name: p.Name + " generous", Capacity: 1 << 40, Refill: 1, Per: time.Microsecond}
		return ratelimit.All(limiter(p), limiter(generous))
	}
	return h
}
