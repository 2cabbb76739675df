package ratelimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

func rejection(t *testing.T, admit router.IngressFunc) *router.LimitExceeded {
	exceeded, ok := errors.AsType[*router.LimitExceeded](admit(t.Context(), from("ann")))
	require.True(t, ok)
	return exceeded
}

func denying(retryAfter time.Duration) limiterFunc {
	return func(context.Context, limit.Key, int64) (limit.Decision, error) {
		return limit.Decision{Limit: 1, RetryAfter: retryAfter}, nil
	}
}

func TestJitter_SpreadsRetriesAndNeverShortensThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admit := ratelimit.New(memory.NewLimiter(limit.PerMinute(1)), &ratelimit.Options{Jitter: 10 * time.Second})
		require.NoError(t, admit(t.Context(), from("ann")))
		var tenths [10]int // rejections by added seconds
		for range 1000 {
			added := rejection(t, admit).RetryAfter - time.Minute
			require.GreaterOrEqual(t, added, time.Duration(0))
			require.Less(t, added, 10*time.Second)
			tenths[added/time.Second]++
		}
		for _, n := range tenths {
			assert.InDelta(t, 100, n, 60, "%v", tenths)
		}
	})
}

func TestJitter_LeavesNeverAndUnknown(t *testing.T) {
	for _, retryAfter := range []time.Duration{limit.Never, 0} {
		admit := ratelimit.New(denying(retryAfter), &ratelimit.Options{Jitter: time.Minute})
		for range 100 {
			assert.Equal(t, retryAfter, rejection(t, admit).RetryAfter)
		}
	}
	admit := ratelimit.New(denying(limit.Never-2), &ratelimit.Options{Jitter: limit.Never})
	for range 100 {
		assert.Contains(t, []time.Duration{limit.Never - 2, limit.Never - 1}, rejection(t, admit).RetryAfter, "a number of milliseconds, not never")
	}
	assert.PanicsWithValue(t, "ratelimit: Jitter is -1s; it must not be negative", func() {
		ratelimit.New(memory.NewLimiter(limit.PerHour(1)), &ratelimit.Options{Jitter: -time.Second})
	})
}
