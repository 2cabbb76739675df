package redis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// TestWindows_RecordsExpire checks the names of records and their expiry on a real server.
func TestWindows_RecordsExpire(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	policy := limit.WindowPolicy{Name: "a:b", Max: 5, Window: time.Minute}
	quota := limit.QuotaPolicy{Name: "a:b", Max: 5, Period: limit.Day}
	for want, l := range map[string]adapter.Resetter{
		"penstock:log:a%3Ab:user:acme:ann:SAY":     redis.NewSlidingLog(client, policy),
		"penstock:counter:a%3Ab:user:acme:ann:SAY": redis.NewSlidingCounter(client, policy),
		"penstock:quota:a%3Ab:user:acme:ann:SAY":   redis.NewQuota(client, quota),
	} {
		d := consume(t, l, user("ann"), 2)
		require.Equal(t, []string{want}, client.Keys(t.Context(), "*").Val())
		left := client.PTTL(t.Context(), want).Val()
		assert.LessOrEqual(t, left, d.ResetAfter+time.Millisecond, want)
		assert.Greater(t, left, d.ResetAfter-5*time.Second, want)
		require.NoError(t, limit.Refund(t.Context(), l, user("ann"), 1))
		left = client.PTTL(t.Context(), want).Val()
		assert.Greater(t, left, d.ResetAfter-5*time.Second, "%s: a refund keeps the expiry", want)
		require.NoError(t, limit.Refund(t.Context(), l, user("ann"), 5))
		assert.Empty(t, client.Keys(t.Context(), "*").Val(), "%s: a record of no tokens is removed", want)
		consume(t, l, user("ann"), 2)
		require.NoError(t, l.Reset(t.Context(), user("ann")))
		assert.Empty(t, client.Keys(t.Context(), "*").Val(), want)
	}
	policy.Window = 100 * time.Millisecond
	consume(t, redis.NewSlidingLog(client, policy), user("ann"), 5)
	consume(t, redis.NewSlidingCounter(client, policy), user("ann"), 5)
	require.Eventually(t, func() bool { return client.DBSize(t.Context()).Val() == 0 }, time.Minute, time.Millisecond)
}

// TestWindows_ExpiryIsThatOfTheLongestPolicy lets a policy with a short window, or period, write the record
// that one with a long window needs.
func TestWindows_ExpiryIsThatOfTheLongestPolicy(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	long, short := limit.WindowPolicy{Name: "w", Max: 9, Window: time.Hour}, limit.WindowPolicy{Name: "w", Max: 9, Window: time.Second}
	penalty := limit.CooldownPolicy{Name: "w", Max: 9, Window: time.Second, Penalty: time.Second}
	longPenalty := limit.CooldownPolicy{Name: "w", Max: 9, Window: time.Second, Penalty: time.Hour}
	month, hour := limit.QuotaPolicy{Name: "w", Max: 9, Period: limit.Month}, limit.QuotaPolicy{Name: "w", Max: 9}
	for kind, limiters := range map[string][2]limit.Limiter{
		"log":      {redis.NewSlidingLog(client, long), redis.NewSlidingLog(client, short)},
		"cooldown": {redis.NewCooldown(client, longPenalty, nil), redis.NewCooldown(client, penalty, nil)},
		"quota":    {redis.NewQuota(client, month), redis.NewQuota(client, hour)},
	} {
		name := "penstock:" + kind + ":w:user:acme:ann:SAY"
		consume(t, limiters[0], user("ann"), 9)
		consume(t, limiters[0], user("ann"), 1) // starts a penalty
		before := client.PTTL(t.Context(), name).Val()
		require.NoError(t, client.Persist(t.Context(), name).Err())
		if kind != "cooldown" {
			require.NoError(t, limit.Refund(t.Context(), limiters[0], user("ann"), 5))
			assert.True(t, consume(t, limiters[1], user("ann"), 1).Allowed, kind)
			assert.InDelta(t, before, client.PTTL(t.Context(), name).Val(), float64(10*time.Second), kind)
			continue
		}
		assert.Equal(t, limit.InCooldown, consume(t, limiters[1], user("ann"), 1).Reason)
		assert.EqualValues(t, -1, client.PTTL(t.Context(), name).Val(), "a denied call writes nothing")
	}
}

// TestSlidingLog_ForeignValue finds a value under the name of a record that is not one.
func TestSlidingLog_ForeignValue(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	l := redis.NewSlidingLog(client, limit.WindowPolicy{Name: "w", Max: 2, Window: time.Hour})
	for _, value := range []string{"0", "0,1730000000000000,1730000000000001,1730000000000002"} {
		require.NoError(t, client.Set(t.Context(), "penstock:log:w:user:acme:ann:SAY", value, 0).Err())
		assert.EqualValues(t, 1, consume(t, l, user("ann"), 1).Remaining)
		assert.EqualValues(t, 0, consume(t, l, user("ann"), 1).Remaining)
	}
}

func TestWindows_InvalidArgumentsPanic(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t)
	window, quota := limit.WindowPolicy{Max: 1, Window: time.Second}, limit.QuotaPolicy{Max: 1}
	assert.PanicsWithValue(t, "redis: a log needs a client", func() { redis.NewSlidingLog(nil, window) })
	assert.PanicsWithValue(t, "redis: a counter needs a client", func() { redis.NewSlidingCounter(nil, window) })
	assert.PanicsWithValue(t, "redis: a quota needs a client", func() { redis.NewQuota(nil, quota) })
	assert.Panics(t, func() { redis.NewSlidingLog(client, limit.WindowPolicy{Max: adapter.MaxLog + 1, Window: time.Second}) })
	assert.Panics(t, func() { redis.NewSlidingCounter(client, limit.WindowPolicy{}) })
	assert.Panics(t, func() { redis.NewQuota(client, limit.QuotaPolicy{}) })
}
