package limit_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
)

// A slow limiter decides some time after it is asked, as one on a distant store, and returns some time
// after that. It cannot decide together with others.
type slow struct {
	limit.Limiter

	pause time.Duration
}

func (s slow) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	time.Sleep(s.pause)
	d, err := s.Limiter.Take(ctx, key, take)
	time.Sleep(s.pause)
	return d, err
}

// denying denies every cost, some time after it is asked.
func denying(pause time.Duration) limit.Limiter {
	return slow{memory.NewLimiter(limit.PerHour(1)), pause}
}

// jointly takes one token of l, and 2 of a limiter that has only one.
func jointly(t *testing.T, l, denying limit.Limiter) {
	t.Helper()
	d, err := limit.ConsumeAll(t.Context(), limit.Request{Limiter: l, Key: ann, Cost: 1}, limit.Request{Limiter: denying, Key: ann, Cost: 2})
	assert.NoError(t, err)
	assert.False(t, d.Allowed)
}

// TestConsumeAll_DeniedCallsReturnNoTokensOfTheNextDay has joint calls that are denied after midnight.
func TestConsumeAll_DeniedCallsReturnNoTokensOfTheNextDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota, never := memory.NewQuota(limit.QuotaPolicy{Max: 3, Period: limit.Day}), denying(time.Second)
		time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(24*time.Hour - time.Second)))
		for range 3 {
			go jointly(t, quota, never)
		}
		time.Sleep(1500 * time.Millisecond) // after midnight
		granted := 0
		for range 10 {
			d, err := limit.Consume(t.Context(), quota, ann, 1)
			require.NoError(t, err)
			if d.Allowed {
				granted++
			}
			time.Sleep(time.Second)
		}
		assert.Equal(t, 3, granted)
	})
}

// TestConsumeAll_DeniedCallsReturnTheirOwnTokensOfALog has a call that is served while a joint call waits
// for its denial.
func TestConsumeAll_DeniedCallsReturnTheirOwnTokensOfALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, never := memory.NewSlidingLog(limit.WindowPolicy{Max: 2, Window: time.Second}), denying(400*time.Millisecond)
		go jointly(t, log, never)
		time.Sleep(100 * time.Millisecond)
		d, err := limit.Consume(t.Context(), log, ann, 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		time.Sleep(950 * time.Millisecond) // the call of the log that was served still counts
		d, err = limit.Consume(t.Context(), log, ann, 2)
		require.NoError(t, err)
		assert.False(t, d.Allowed, "3 tokens within a second")
	})
}

// TestConsumeAll_DeniedCallsGrantNoMoreThanTheBucketAllows has many joint calls that are denied while
// others spend what the bucket holds, and compares what is granted with the bound of the policy.
func TestConsumeAll_DeniedCallsGrantNoMoreThanTheBucketAllows(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			policy := limit.Per(1+rng.Int64N(20), 10*time.Millisecond).Burst(10)
			bucket := memory.NewLimiter(policy)
			rate := float64(policy.Refill) / float64(policy.Per)
			level, last := 0.0, time.Now() // of the interval with the most grants above the refill
			for range 300 {
				switch rng.IntN(3) {
				case 0:
					go jointly(t, bucket, denying(time.Duration(rng.Int64N(int64(5*time.Millisecond)))))
				default:
					cost := 1 + rng.Int64N(10)
					d, err := limit.Consume(t.Context(), bucket, ann, cost)
					require.NoError(t, err)
					level = max(0, level-rate*float64(time.Since(last)))
					last = time.Now()
					if d.Allowed {
						level += float64(cost)
					}
					require.LessOrEqual(t, level, 10+1e-6, "seed %d: tokens granted in an interval, above its refill", seed)
				}
				time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Millisecond))))
			}
			time.Sleep(time.Second)
		})
	}
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
	never, users := denying(50*time.Millisecond), slow{memory.NewLimiter(limit.PerSecond(1000)), time.Millisecond}
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
		both := limit.AllOf(cooldown, slow{bucket, time.Millisecond})
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
