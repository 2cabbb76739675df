package limittest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/limittest"
)

func faultyBucket(seed uint64, p limit.Policy) *limittest.FaultyLimiter {
	return limittest.Faulty(seed, func(now func() time.Time) limit.Limiter { return memory.NewSimulation(now).NewLimiter(p) })
}

// Callers of a limiter on a store that loses answers are never granted more than the policy allows,
// and know of at most what was granted.
func ExampleFaulty() {
	synctest.Test(&testing.T{}, func(*testing.T) {
		policy, key := limit.PerHour(100), limit.Key{"user", "ann"}
		l := limittest.Faulty(1, func(now func() time.Time) limit.Limiter { return memory.NewSimulation(now).NewLimiter(policy) })
		var mu sync.Mutex
		var known int64
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				d, err := limit.Consume(context.Background(), l, key, 1)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && d.Allowed {
					known++
				}
			})
		}
		wg.Wait()
		fmt.Println("granted:", l.Granted(key), "answers lost:", known < l.Granted(key))
	})
	// Output: granted: 100 answers lost: true
}

func TestFaulty_EachFaultOccurs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, key := faultyBucket(7, limit.PerSecond(1000)), limit.Key{"user", "ann"}
		var mu sync.Mutex
		var failed, late int
		var wg sync.WaitGroup
		for range 2000 {
			wg.Go(func() {
				start := time.Now()
				d, err := limit.Consume(t.Context(), l, key, 1)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					assert.Zero(t, d)
					failed++
				} else if time.Since(start) > 10*time.Millisecond {
					late++
				}
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		counts := l.Happened()
		assert.Equal(t, 2000, counts.Takes)
		assert.Greater(t, counts.LostTakes, 20)
		assert.Greater(t, counts.LostAnswers, 20)
		assert.Greater(t, counts.Steps, 10)
		assert.Greater(t, counts.Overtaken, 100)
		assert.Greater(t, late, 100)
		assert.Equal(t, counts.LostTakes+counts.LostAnswers, failed)
		decided := l.Decided(key)
		assert.Len(t, decided, 2000-counts.LostTakes, "a lost Take is not decided")
		lost, granted := 0, int64(0)
		for _, d := range decided {
			if d.Lost {
				lost++
			}
			if d.Decision.Allowed {
				granted++
			}
		}
		assert.Equal(t, counts.LostAnswers, lost)
		assert.Equal(t, granted, l.Granted(key))
	})
}

func TestFaulty_ContextEndsBeforeAndAfterTheDecision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, key := faultyBucket(3, limit.PerHour(1000)), limit.Key{"user", "ann"}
		l.SetFaults(limittest.Faults{MaxDelay: time.Second})
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			_, err := limit.Consume(ctx, l, key, 1)
			assert.Condition(t, func() bool { return err == nil || ctx.Err() != nil })
			cancel()
		}
		decided, lost := l.Decided(key), 0
		for _, d := range decided {
			if d.Lost {
				lost++
			}
		}
		assert.Less(t, len(decided), 90, "some are not decided")
		assert.Greater(t, lost, 10, "some are decided, and their callers do not know it")
		assert.EqualValues(t, len(decided), l.Granted(key))
	})
}

func TestFaulty_GrantedCountsEveryMode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, key, ctx := faultyBucket(1, limit.PerHour(10)), limit.Key{"user", "ann"}, t.Context()
		l.SetFaults(limittest.Faults{})
		d, err := l.Take(ctx, key, limit.Take{Cost: 4, Receipt: true})
		require.NoError(t, err)
		require.NoError(t, d.Receipt.Undo(ctx, l, key))
		d, err = l.Take(ctx, key, limit.Take{Cost: 6, Lease: time.Minute, Receipt: true})
		require.NoError(t, err)
		require.NoError(t, d.Receipt.Settle(ctx, l, key, 2))
		_, _, err = limit.ConsumeUpTo(ctx, l, key, 3)
		require.NoError(t, err)
		require.NoError(t, limit.Charge(ctx, l, key, 5))
		require.NoError(t, limit.Refund(ctx, l, key, 1))
		_, err = limit.Consume(ctx, l, key, 9)
		require.NoError(t, err)
		_, err = limit.Inspect(ctx, l, key)
		require.NoError(t, err)
		assert.EqualValues(t, 2+3+5-1, l.Granted(key))
		before := l.Now()
		l.Step(-time.Minute)
		assert.Equal(t, -time.Minute, l.Now().Sub(before))
		assert.Error(t, adapter.Check(l, limit.Take{Cost: -1}))
		assert.Equal(t, "", l.Describe()[0].Name)
	})
}
