package ratelimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

func TestMaxWaitLetsMessagesWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := memory.NewLimiter(ratelimit.PerSecond(1).Burst(2))
		admit := ratelimit.New(limiter, &ratelimit.Options{MaxWait: 2 * time.Second})
		start := time.Now()
		entered := make(chan time.Duration, 8)
		for range 4 {
			go func() {
				if admit(t.Context(), from("ann")) == nil {
					entered <- time.Since(start)
				}
			}()
			synctest.Wait()
		}
		assert.Equal(t, &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 2, RetryAfter: time.Second}, admit(t.Context(), from("ann")),
			"it would have to wait for three seconds")
		for _, want := range []time.Duration{0, 0, time.Second, 2 * time.Second} {
			assert.Equal(t, want, <-entered)
		}
	})
}

func TestWhoGivesUpWaitingDoesNotEnter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admit := ratelimit.New(memory.NewLimiter(ratelimit.PerMinute(1)), &ratelimit.Options{MaxWait: time.Hour})
		require.NoError(t, admit(t.Context(), from("ann")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, admit(ctx, from("ann")), context.DeadlineExceeded)
		start := time.Now()
		require.NoError(t, admit(t.Context(), from("ann")))
		assert.Equal(t, 119*time.Second, time.Since(start), "who gave up has paid")
	})
}

func TestWhatIsNotRefusedDoesNotWait(t *testing.T) {
	for name, opts := range map[string]*ratelimit.Options{
		"charge only": {ChargeOnly: func(router.IngressContext) bool { return true }},
		"dry run":     {OnDryRun: func(router.IngressContext, *router.LimitExceeded) {}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts.MaxWait = time.Minute
				admit := ratelimit.New(memory.NewLimiter(ratelimit.PerMinute(1)), opts)
				start := time.Now()
				for range 5 {
					require.NoError(t, admit(t.Context(), from("ann")))
				}
				assert.Zero(t, time.Since(start))
			})
		})
	}
}

func TestMaxWaitWithALimiterThatIsGuarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		primary := &remote{Limiter: memory.NewLimiter(ratelimit.PerSecond(1))}
		admit := ratelimit.New(primary, &ratelimit.Options{
			MaxWait:  time.Minute,
			Fallback: memory.NewLimiter(ratelimit.PerMinute(1)),
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
	ratelimit.Limiter

	err error
}

func (r *remote) Reserve(ctx context.Context, key ratelimit.Key, cost int64, maxWait time.Duration) (ratelimit.Decision, error) {
	if r.err != nil {
		return ratelimit.Decision{}, r.err
	}
	return r.Limiter.(ratelimit.Reserver).Reserve(ctx, key, cost, maxWait)
}

func TestMaxWaitNeedsReservers(t *testing.T) {
	plain := limiterFunc(func(context.Context, ratelimit.Key, int64) (ratelimit.Decision, error) {
		return ratelimit.Decision{}, nil
	})
	able := memory.NewLimiter(ratelimit.PerSecond(1))
	assert.PanicsWithValue(t, "ratelimit: MaxWait needs a Reserver, such as a limiter in memory or on Redis; a ratelimit_test.limiterFunc is none", func() {
		ratelimit.New(plain, &ratelimit.Options{MaxWait: time.Second})
	})
	assert.Panics(t, func() { ratelimit.New(able, &ratelimit.Options{MaxWait: time.Second, Fallback: plain}) })
	for _, d := range []time.Duration{-1, time.Hour + 1} {
		assert.Panics(t, func() { ratelimit.New(able, &ratelimit.Options{MaxWait: d}) })
	}
}

// A hanging limiter answers when its caller gives up.
type hanging struct{ ratelimit.Adjustable }

func (hanging) Consume(ctx context.Context, _ ratelimit.Key, _ int64) (ratelimit.Decision, error) {
	<-ctx.Done()
	return ratelimit.Decision{}, ctx.Err()
}

func TestAllHonoursItsCallersContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := memory.NewLimiter(ratelimit.PerHour(5))
		both := ratelimit.All(first, hanging{memory.NewLimiter(ratelimit.PerHour(5))})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := both.Consume(ctx, ratelimit.Key{"ann"}, 1)
			done <- err
		}()
		synctest.Wait()
		impatient, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		_, err := both.Consume(impatient, ratelimit.Key{"ann"}, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded, "who waits for its turn may give up")
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		d, err := first.Consume(t.Context(), ratelimit.Key{"ann"}, 0)
		require.NoError(t, err)
		assert.EqualValues(t, 5, d.Remaining, "what was taken is given back")
	})
}
