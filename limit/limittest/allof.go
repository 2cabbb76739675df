package limittest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// AllOf tests [limit.AllOf] of a harness's limiters: a denial by one limiter costs nothing at
// the others, and concurrent calls take from both or from none.
func AllOf(t *testing.T, h Harness) {
	t.Helper()
	perSecond, perDay := limit.PerSecond(2).Named("second"), limit.Per(5, 24*time.Hour).Named("day")
	second, day := h.New(perSecond), h.New(perDay)
	both := limit.AllOf(second, day)
	ann := key("ann")
	policy := func(name string) string {
		if _, ok := second.(adapter.Describer); ok {
			return name
		}
		return ""
	}
	for n := range 2 {
		want := limit.Decision{Allowed: true, Limit: 2, Remaining: int64(1 - n), ResetAfter: time.Duration(n+1) * time.Second / 2, Policy: policy("second")}
		assert.Equal(t, want, consume(t, both, ann, 1))
	}
	assert.Equal(t, time.Second/2, consume(t, both, ann, 1).RetryAfter, "the limit per second denies")
	assert.EqualValues(t, 3, consume(t, day, ann, 0).Remaining, "a denial does not charge the limit per day")
	h.Sleep(time.Second)
	consume(t, both, ann, 2)
	h.Sleep(time.Second)
	consume(t, both, ann, 1)
	d := consume(t, both, ann, 1)
	assert.Equal(t, []any{false, int64(5), policy("day")}, []any{d.Allowed, d.Limit, d.Policy}, "the limit per day denies")
	assert.EqualValues(t, 1, consume(t, second, ann, 0).Remaining, "a denial does not charge the limit per second")
	h.Sleep(d.RetryAfter)
	assert.True(t, consume(t, both, ann, 1).Allowed, "the longest RetryAfter is enough")
	assert.Equal(t, limit.Never, consume(t, both, ann, 3).RetryAfter, "the cost is above the capacity per second")
	allOfConcurrently(t, h)
}

// allOfConcurrently sends many calls of which one limiter denies most.
func allOfConcurrently(t *testing.T, h Harness) {
	few, many := h.New(limit.PerHour(10).Named("few")), h.New(limit.PerHour(1000).Named("many"))
	both := limit.AllOf(many, few)
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if consume(t, both, key("eve"), 1).Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 10, allowed.Load())
	assert.EqualValues(t, 990, consume(t, many, key("eve"), 0).Remaining)
}

// WithAllOf returns a harness whose limiters are [limit.AllOf] of a limiter with the requested
// policy and one that never denies, to run [Cases] with.
func WithAllOf(h Harness) Harness {
	newLimiter := h.New
	h.New = func(p limit.Policy) limit.Limiter {
		generous := limit.Policy{Name: p.Name + " generous", Capacity: 1 << 40, Refill: 1, Per: time.Microsecond}
		return limit.AllOf(newLimiter(p), newLimiter(generous))
	}
	return h
}
