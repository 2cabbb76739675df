package ratelimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

func TestMaxWait_KeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := memory.NewLimiter(limit.PerSecond(1).Burst(2))
		admit := ratelimit.New(limiter, &ratelimit.Options{MaxWait: 2 * time.Second})
		start := time.Now()
		admitted := make(chan time.Duration, 8)
		for range 4 {
			go func() {
				if admit(t.Context(), from("ann")) == nil {
					admitted <- time.Since(start)
				}
			}()
			synctest.Wait()
		}
		assert.Equal(t, &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 2, RetryAfter: time.Second}, admit(t.Context(), from("ann")),
			"it would have to wait for three seconds")
		for _, want := range []time.Duration{0, 0, time.Second, 2 * time.Second} {
			assert.Equal(t, want, <-admitted)
		}
	})
}

func TestMaxWait_CanceledMessageIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admit := ratelimit.New(memory.NewLimiter(limit.PerMinute(1)), &ratelimit.Options{MaxWait: time.Hour})
		require.NoError(t, admit(t.Context(), from("ann")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, admit(ctx, from("ann")), context.DeadlineExceeded)
		start := time.Now()
		require.NoError(t, admit(t.Context(), from("ann")))
		assert.Equal(t, 119*time.Second, time.Since(start), "the canceled message is charged")
	})
}

func TestMaxWait_MessagesThatAreNeverRejectedDoNotWait(t *testing.T) {
	for name, opts := range map[string]*ratelimit.Options{
		"charge only": {ChargeOnly: func(router.IngressContext) bool { return true }},
		"dry run":     {DryRun: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts.MaxWait = time.Minute
				admit := ratelimit.New(memory.NewLimiter(limit.PerMinute(1)), opts)
				start := time.Now()
				for range 5 {
					require.NoError(t, admit(t.Context(), from("ann")))
				}
				assert.Zero(t, time.Since(start))
			})
		})
	}
}

func TestMaxWait_WaitsForLimiterAndFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		primary := &remote{Limiter: memory.NewLimiter(limit.PerSecond(1))}
		admit := ratelimit.New(primary, &ratelimit.Options{
			MaxWait:  time.Minute,
			Fallback: memory.NewLimiter(limit.PerMinute(1)),
		})
		start := time.Now()
		for range 3 {
			require.NoError(t, admit(t.Context(), from("ann")))
		}
		assert.Equal(t, 2*time.Second, time.Since(start))
		primary.err = context.DeadlineExceeded
		for range 2 {
			require.NoError(t, admit(t.Context(), from("ann")))
		}
		assert.Equal(t, 62*time.Second, time.Since(start), "the fallback is slower")
	})
}

// A remote is a limiter that may fail.
type remote struct {
	limit.Limiter

	err error
}

func (r *remote) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	if r.err != nil {
		return limit.Decision{}, r.err
	}
	return r.Limiter.Take(ctx, key, take)
}

func TestMaxWait_PanicsIfALimiterCannotReserve(t *testing.T) {
	plain := limiterFunc(func(context.Context, limit.Key, int64) (limit.Decision, error) {
		return limit.Decision{}, nil
	})
	reserver := memory.NewLimiter(limit.PerSecond(1))
	assert.PanicsWithValue(t, "ratelimit: MaxWait is set, which a ratelimit_test.limiterFunc cannot do: the limiter can only take a cost whole", func() {
		ratelimit.New(plain, &ratelimit.Options{MaxWait: time.Second})
	})
	assert.Panics(t, func() { ratelimit.New(reserver, &ratelimit.Options{MaxWait: time.Second, Fallback: plain}) })
	for _, d := range []time.Duration{-1, time.Hour + 1} {
		assert.Panics(t, func() { ratelimit.New(reserver, &ratelimit.Options{MaxWait: d}) })
	}
}
