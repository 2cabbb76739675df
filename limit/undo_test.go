package limit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/internal/fakelimiter"
	"github.com/penstock-go/penstock/limit"
)

// slow returns l as one on a distant store: it decides some time after it is asked, returns some time
// after that, and cannot decide together with others.
func slow(l limit.Limiter, pause time.Duration) limit.Limiter {
	return &fakelimiter.Limiter{Do: l.Take, Delay: pause}
}

// denying denies every cost, some time after it is asked.
func denying(pause time.Duration) limit.Limiter {
	return slow(memory.NewLimiter(limit.PerHour(1)), pause)
}

// jointly takes one token of l, and 2 of a limiter that has only one.
func jointly(t *testing.T, l, denying limit.Limiter) {
	t.Helper()
	d, err := limit.ConsumeAll(t.Context(), limit.Request{Limiter: l, Key: ann, Cost: 1}, limit.Request{Limiter: denying, Key: ann, Cost: 2})
	assert.NoError(t, err)
	assert.False(t, d.Allowed)
}

// TestConsumeAll_DeniedFloodLeavesTokensForOthers has floods of joint calls that a slow limiter denies,
// while a client takes from the first one at half its rate, alone and jointly.
func TestConsumeAll_DeniedFloodLeavesTokensForOthers(t *testing.T) {
	for name, flooders := range map[string]int{"of one client": 1, "of many clients": 20} {
		for kind, room := range map[string]func() limit.Limiter{
			"bucket": func() limit.Limiter { return memory.NewLimiter(limit.PerSecond(10)) },
			"log":    func() limit.Limiter { return memory.NewSlidingLog(limit.WindowPolicy{Max: 10, Window: time.Second}) },
			"quota":  func() limit.Limiter { return memory.NewQuota(limit.QuotaPolicy{Max: 100, Period: limit.Hour}) },
		} {
			t.Run(name+" of a "+kind, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { floodJointly(t, room(), flooders) })
			})
		}
	}
}

func floodJointly(t *testing.T, room limit.Limiter, flooders int) {
	ctx, stop := context.WithCancel(t.Context())
	never, users := denying(50*time.Millisecond), slow(memory.NewLimiter(limit.PerSecond(1000)), time.Millisecond)
	key := limit.Key{"room"}
	for n := range flooders {
		for range 60 / flooders {
			go func() {
				for ctx.Err() == nil {
					_, _ = limit.ConsumeAll(ctx, limit.Request{Limiter: room, Key: key, Cost: 1}, limit.Request{Limiter: never, Key: limit.Key{"user", string(rune('a' + n))}, Cost: 2})
					time.Sleep(time.Millisecond) // the bucket may deny in this process
				}
			}()
		}
	}
	granted := 0
	for n := range 50 {
		time.Sleep(200 * time.Millisecond)
		requests := []limit.Request{{Limiter: room, Key: key, Cost: 1}}
		if n%10 == 0 {
			requests = append(requests, limit.Request{Limiter: users, Key: ann, Cost: 1})
		}
		d, err := limit.ConsumeAll(ctx, requests...)
		require.NoError(t, err)
		if d.Allowed {
			granted++
		}
	}
	assert.GreaterOrEqual(t, granted, 49)
	stop()
	synctest.Wait()
	time.Sleep(2 * time.Second)
	d, err := limit.Inspect(t.Context(), room, key)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, d.Remaining, int64(10), "nothing of denied calls is missing")
}

// TestConsumeAll_WaitsForItsPlaceUntilTheContextEnds has more joint calls than may be on their way.
func TestConsumeAll_WaitsForItsPlaceUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bucket, never := memory.NewLimiter(limit.PerHour(4)), denying(time.Second)
		for range 2 {
			go jointly(t, bucket, never)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := limit.ConsumeAll(ctx, limit.Request{Limiter: bucket, Key: ann, Cost: 1}, limit.Request{Limiter: never, Key: ann, Cost: 2})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		d, err := limit.Inspect(t.Context(), bucket, ann)
		require.NoError(t, err)
		assert.EqualValues(t, 2, d.Remaining, "half of what the bucket can hold is on its way")
		time.Sleep(2 * time.Second)
		jointly(t, bucket, never)
	})
}

// TestUndoAll_ReturnsWhatSeveralLimitersGave takes from a bucket, a quota and a nested AllOf.
func TestUndoAll_ReturnsWhatSeveralLimitersGave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, quota := memory.NewLimiter(limit.PerHour(10)), memory.NewQuota(limit.QuotaPolicy{Max: 10, Period: limit.Day})
		log, counter := memory.NewSlidingLog(limit.WindowPolicy{Max: 10, Window: time.Hour}), memory.NewSlidingCounter(limit.WindowPolicy{Max: 10, Window: time.Hour})
		requests := []limit.Request{
			{Limiter: bucket, Key: ann, Cost: 1},
			{Limiter: limit.AllOf(log, counter), Key: ann, Cost: 3},
			{Limiter: quota, Key: ann, Cost: 0},
			{Limiter: quota, Key: limit.Key{"user", "bob"}, Cost: 2},
		}
		remaining := func() (all []int64) {
			for _, l := range []limit.Limiter{bucket, log, counter} {
				d, err := limit.Inspect(t.Context(), l, ann)
				require.NoError(t, err)
				all = append(all, d.Remaining)
			}
			d, err := limit.Inspect(t.Context(), quota, limit.Key{"user", "bob"})
			require.NoError(t, err)
			return append(all, d.Remaining)
		}
		d, err := limit.Take{Receipt: true}.All(t.Context(), requests...)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Equal(t, []int64{9, 7, 7, 8}, remaining())
		require.NoError(t, d.Receipt.UndoAll(t.Context(), requests...))
		require.Equal(t, []int64{10, 10, 10, 10}, remaining())
		d, err = limit.ConsumeAll(t.Context(), requests...)
		require.NoError(t, err)
		assert.Zero(t, d.Receipt, "none was requested")
	})
}

// TestAllOf_CooldownInMemoryStartsItsPenalty has a cooldown that is asked before a distant limiter.
func TestAllOf_CooldownInMemoryStartsItsPenalty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		penalties := 0
		cooldown := memory.NewCooldown(limit.CooldownPolicy{Max: 2, Window: time.Minute, Penalty: time.Hour}, func(limit.Penalty) { penalties++ })
		bucket := memory.NewLimiter(limit.PerHour(100))
		both := limit.AllOf(cooldown, slow(bucket, time.Millisecond))
		for n := range 20 {
			start := time.Now()
			d, err := limit.Consume(t.Context(), both, ann, 1)
			require.NoError(t, err)
			require.Equal(t, n < 2, d.Allowed)
			if n > 2 {
				require.Zero(t, time.Since(start), "a denial in this process reaches no other limiter")
			}
		}
		assert.Equal(t, 1, penalties)
		d, err := limit.Inspect(t.Context(), bucket, ann)
		require.NoError(t, err)
		assert.EqualValues(t, 98, d.Remaining)
	})
}
