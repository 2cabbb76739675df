package memory_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
)

// TestLimiter_LeasesAndCallsOfOneKeyAreExact has plain calls, leases, receipts and joint calls for one key at
// once, of which only the plain and the settled ones take something in the end.
func TestLimiter_LeasesAndCallsOfOneKeyAreExact(t *testing.T) {
	t.Parallel()
	l, other := memory.NewLimiter(limit.PerMinute(1).Burst(1_000_000)), memory.NewLimiter(limit.PerMinute(1).Burst(1_000_000))
	key, ctx := user("ann"), t.Context()
	var taken atomic.Int64
	take := func(take limit.Take) limit.Receipt {
		d, err := l.Take(ctx, key, take)
		assert.NoError(t, err)
		assert.True(t, d.Allowed)
		return d.Receipt
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				take(limit.Take{Cost: 3})
				taken.Add(3)
			}
		})
		wg.Go(func() {
			for n := range int64(500) {
				r := take(limit.Take{Cost: 20, Lease: time.Hour, Receipt: true})
				assert.NoError(t, r.Settle(ctx, l, key, n%30))
				taken.Add(n % 30)
			}
		})
		wg.Go(func() {
			for range 500 {
				assert.NoError(t, take(limit.Take{Cost: 7, Receipt: true}).Undo(ctx, l, key))
			}
		})
		wg.Go(func() {
			requests := []limit.Request{{Limiter: l, Key: key, Cost: 5}, {Limiter: other, Key: key, Cost: 1}}
			for range 500 {
				d, err := limit.Take{Receipt: true}.All(ctx, requests...)
				assert.NoError(t, err)
				assert.NoError(t, d.Receipt.UndoAll(ctx, requests...))
			}
		})
	}
	wg.Wait()
	d, err := limit.Inspect(ctx, l, key)
	assert.NoError(t, err)
	assert.InDelta(t, 1_000_000-taken.Load(), d.Remaining, 1, "a token returns per minute")
}
