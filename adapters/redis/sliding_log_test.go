package redis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
)

// TestWindows_RecordsExpire checks the names of records and their expiry on a real server.
func TestWindows_RecordsExpire(t *testing.T) {
	client := redistest.Start(t).Client(t)
	policy := limit.WindowPolicy{Name: "a:b", Max: 5, Window: time.Minute}
	quota := limit.QuotaPolicy{Name: "a:b", Max: 5, Period: limit.Day}
	for want, l := range map[string]limit.Refunder{
		"penstock:log:a%3Ab:user:acme:ann:SAY":     redis.NewSlidingLog(client, policy),
		"penstock:counter:a%3Ab:user:acme:ann:SAY": redis.NewSlidingCounter(client, policy),
		"penstock:quota:a%3Ab:user:acme:ann:SAY":   redis.NewQuota(client, quota),
	} {
		d := consume(t, l, user("ann"), 2)
		require.Equal(t, []string{want}, client.Keys(t.Context(), "*").Val())
		left := client.PTTL(t.Context(), want).Val()
		assert.LessOrEqual(t, left, d.ResetAfter+time.Millisecond, want)
		assert.Greater(t, left, d.ResetAfter-5*time.Second, want)
		require.NoError(t, l.Refund(t.Context(), user("ann"), 1))
		left = client.PTTL(t.Context(), want).Val()
		assert.Greater(t, left, d.ResetAfter-5*time.Second, "%s: a refund keeps the expiry", want)
		require.NoError(t, l.Refund(t.Context(), user("ann"), 5))
		assert.Empty(t, client.Keys(t.Context(), "*").Val(), "%s: a record of no tokens is removed", want)
		consume(t, l, user("ann"), 2)
		require.NoError(t, l.Reset(t.Context(), user("ann")))
		assert.Empty(t, client.Keys(t.Context(), "*").Val(), want)
	}
	policy.Window = 100 * time.Millisecond
	consume(t, redis.NewSlidingLog(client, policy), user("ann"), 5)
	consume(t, redis.NewSlidingCounter(client, policy), user("ann"), 5)
	require.Eventually(t, func() bool { return client.DBSize(t.Context()).Val() == 0 }, 5*time.Second, time.Millisecond)
}

// TestSlidingLog_ForeignValue finds a value under the name of a record that is not one.
func TestSlidingLog_ForeignValue(t *testing.T) {
	client := redistest.Any(t)
	policy := limit.WindowPolicy{Name: redistest.Prefix(t), Max: 2, Window: time.Hour}
	l := redis.NewSlidingLog(client, policy)
	consume(t, l, user("ann"), 1)
	names := client.Keys(t.Context(), "penstock:log:"+t.Name()+"*").Val()
	require.Len(t, names, 1)
	for _, value := range []string{"0", "0,1730000000000000,1730000000000001,1730000000000002"} {
		require.NoError(t, client.Set(t.Context(), names[0], value, 0).Err())
		assert.EqualValues(t, 1, consume(t, l, user("ann"), 1).Remaining)
		assert.EqualValues(t, 0, consume(t, l, user("ann"), 1).Remaining)
	}
}

func TestWindows_DenialIsCached(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client(t)
	window := limit.WindowPolicy{Max: 3, Window: time.Hour}
	for name, l := range map[string]limit.Limiter{
		"log":     redis.NewSlidingLog(client, window),
		"counter": redis.NewSlidingCounter(client, window),
		"quota":   redis.NewQuota(client, limit.QuotaPolicy{Max: 3, Period: limit.Month}),
	} {
		consume(t, l, user("ann"), 3)
		server.ResetStats(t)
		for range 1000 {
			d := consume(t, l, user("ann"), 1)
			require.False(t, d.Allowed)
			require.Positive(t, d.RetryAfter)
		}
		assert.LessOrEqual(t, server.CommandStats(t)["evalsha"], int64(10), name)
	}
}

func TestWindows_InvalidArgumentsPanic(t *testing.T) {
	client := redistest.Any(t)
	window, quota := limit.WindowPolicy{Max: 1, Window: time.Second}, limit.QuotaPolicy{Max: 1}
	assert.PanicsWithValue(t, "redis: a log needs a client", func() { redis.NewSlidingLog(nil, window) })
	assert.PanicsWithValue(t, "redis: a counter needs a client", func() { redis.NewSlidingCounter(nil, window) })
	assert.PanicsWithValue(t, "redis: a quota needs a client", func() { redis.NewQuota(nil, quota) })
	assert.Panics(t, func() { redis.NewSlidingLog(client, limit.WindowPolicy{Max: limit.MaxLog + 1, Window: time.Second}) })
	assert.Panics(t, func() { redis.NewSlidingCounter(client, limit.WindowPolicy{}) })
	assert.Panics(t, func() { redis.NewQuota(client, limit.QuotaPolicy{}) })
}

func TestWindows_UnnamedPoliciesAreSeparate(t *testing.T) {
	client := redistest.Start(t).Client(t)
	two, three := limit.WindowPolicy{Max: 2, Window: time.Hour}, limit.WindowPolicy{Max: 3, Window: time.Hour}
	assert.True(t, consume(t, redis.NewSlidingLog(client, two), user("ann"), 2).Allowed)
	assert.True(t, consume(t, redis.NewSlidingLog(client, three), user("ann"), 3).Allowed)
	assert.True(t, consume(t, redis.NewSlidingCounter(client, two), user("ann"), 2).Allowed)
	assert.True(t, consume(t, redis.NewQuota(client, limit.QuotaPolicy{Max: 2}), user("ann"), 2).Allowed)
	assert.True(t, consume(t, redis.NewQuota(client, limit.QuotaPolicy{Max: 2, Period: limit.Day}), user("ann"), 2).Allowed)
	assert.ElementsMatch(t, []string{
		"penstock:log:2-in-1h0m0s:user:acme:ann:SAY", "penstock:log:3-in-1h0m0s:user:acme:ann:SAY",
		"penstock:counter:2-in-1h0m0s:user:acme:ann:SAY",
		"penstock:quota:2-per-hour-in-UTC:user:acme:ann:SAY", "penstock:quota:2-per-day-in-UTC:user:acme:ann:SAY",
	}, client.Keys(t.Context(), "*").Val())
}
