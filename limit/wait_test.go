package limit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/fakelimiter"
	"github.com/penstock-go/penstock/limit"
)

var ann = limit.Key{"user", "ann"}

// bothKinds runs a test with a limiter that can reserve and one that cannot.
func bothKinds(t *testing.T, p limit.Policy, test func(t *testing.T, l limit.Limiter)) {
	for name, l := range map[string]func() limit.Limiter{
		"reserver": func() limit.Limiter { return memory.NewLimiter(p) },
		"plain":    func() limit.Limiter { return &fakelimiter.Limiter{Do: memory.NewLimiter(p).Take, Plain: true} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, l()) })
		})
	}
}

func TestWait_ReturnsWhenTokensAreThere(t *testing.T) {
	bothKinds(t, limit.PerSecond(1).Burst(2), func(t *testing.T, l limit.Limiter) {
		start := time.Now()
		for _, want := range []time.Duration{0, 0, time.Second, 2 * time.Second} {
			require.NoError(t, limit.Wait(t.Context(), l, ann, 1))
			assert.Equal(t, want, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		require.NoError(t, limit.Wait(ctx, l, ann, 1), "the tokens return before the deadline")
		assert.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestWait_ServesReservationsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory.NewLimiter(limit.PerSecond(1))
		served := make(chan int, 5)
		for n := range 5 {
			go func() {
				if limit.Wait(t.Context(), l, ann, 1) == nil {
					served <- n
				}
			}()
			synctest.Wait()
		}
		for n := range 5 {
			assert.Equal(t, n, <-served)
		}
	})
}

func TestWait_ReturnsAtOnceIfDeadlineIsTooEarly(t *testing.T) {
	bothKinds(t, limit.PerMinute(1), func(t *testing.T, l limit.Limiter) {
		require.NoError(t, limit.Wait(t.Context(), l, ann, 1))
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 59*time.Second)
		defer cancel()
		err := limit.Wait(ctx, l, ann, 1)
		assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err))
		assert.Zero(t, time.Since(start))
		time.Sleep(time.Minute)
		d, err := limit.Consume(t.Context(), l, ann, 1)
		require.NoError(t, err)
		assert.True(t, d.Allowed, "no token was taken")
	})
}

// TestWait_ServesMoreThanTwoWindows has more callers than the current and the next window have
// tokens, and one whose deadline is too early.
func TestWait_ServesMoreThanTwoWindows(t *testing.T) {
	for name, newLimiter := range map[string]func() limit.Limiter{
		"log":     func() limit.Limiter { return memory.NewSlidingLog(limit.WindowPolicy{Max: 2, Window: time.Minute}) },
		"counter": func() limit.Limiter { return memory.NewSlidingCounter(limit.WindowPolicy{Max: 2, Window: time.Minute}) },
		"quota":   func() limit.Limiter { return memory.NewQuota(limit.QuotaPolicy{Max: 2}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, served := newLimiter(), make(chan error, 11)
				last := 30 * time.Minute
				if name == "quota" {
					last = 6 * time.Hour
				}
				ctx, cancel := context.WithTimeout(t.Context(), last)
				defer cancel()
				for range cap(served) {
					go func() { served <- limit.Wait(ctx, l, ann, 1) }()
					synctest.Wait()
				}
				early, cancelEarly := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancelEarly()
				start := time.Now()
				assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(limit.Wait(early, l, ann, 1)))
				assert.Zero(t, time.Since(start))
				for range cap(served) {
					assert.NoError(t, <-served)
				}
			})
		})
	}
}

func TestWait_OutlastsABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memory.NewLimiter(limit.PerMinute(1))
		require.NoError(t, l.Block(t.Context(), ann, time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.NoError(t, limit.Wait(ctx, l, ann, 1))
	})
}

func TestWait_ReturnsAtOnceIfCostIsNeverAllowed(t *testing.T) {
	bothKinds(t, limit.PerMinute(2), func(t *testing.T, l limit.Limiter) {
		err := limit.Wait(t.Context(), l, ann, 3)
		assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(err))
		assert.ErrorContains(t, err, "a cost of 3 is above the limit of 2")
	})
}

func TestWait_CancellationTakesNothing(t *testing.T) {
	bothKinds(t, limit.PerMinute(1), func(t *testing.T, l limit.Limiter) {
		require.NoError(t, limit.Wait(t.Context(), l, ann, 1))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- limit.Wait(ctx, l, ann, 1) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.ErrorIs(t, limit.Wait(ctx, l, ann, 0), context.Canceled)
		time.Sleep(time.Minute)
		d, err := limit.Consume(t.Context(), l, ann, 1)
		require.NoError(t, err)
		assert.True(t, d.Allowed, "the token of the reservation was returned")
	})
}

func TestWait_ReturnsErrorsOfLimiter(t *testing.T) {
	err := limit.Wait(t.Context(), memory.NewLimiter(limit.PerHour(1)), ann, -1)
	assert.ErrorContains(t, err, "cost is -1")
}

func TestReason_String(t *testing.T) {
	for reason, want := range map[limit.Reason]string{
		limit.NoTokens: "", limit.BurstExceeded: "burst", limit.InCooldown: "cooldown", limit.Blocked: "blocked", 200: "unknown",
	} {
		assert.Equal(t, want, reason.String())
	}
}
