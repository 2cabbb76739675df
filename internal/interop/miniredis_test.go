package interop_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/outbound"
	"github.com/penstock-go/penstock/outbound/redisbudget"
)

// Applications test with miniredis, whose Lua is another one than that of Redis.
func newMiniredis(t *testing.T) *goredis.Client {
	server := miniredis.RunT(t)
	server.SetTime(time.Now()) // it stands still
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestMiniredis_EveryKindOfLimit(t *testing.T) {
	client := newMiniredis(t)
	for name, l := range map[string]limit.Limiter{
		"bucket":          redis.NewLimiter(client, limit.PerHour(5)),
		"sliding log":     redis.NewSlidingLog(client, limit.WindowPolicy{Max: 5, Window: time.Hour}),
		"sliding counter": redis.NewSlidingCounter(client, limit.WindowPolicy{Max: 5, Window: time.Hour}),
		"cooldown":        redis.NewCooldown(client, limit.CooldownPolicy{Max: 5, Window: time.Hour, Penalty: time.Hour}, nil),
		"quota":           redis.NewQuota(client, limit.QuotaPolicy{Max: 5, Period: limit.Month}),
	} {
		t.Run(name, func(t *testing.T) { testFiveOnMiniredis(t, l) })
	}
}

func TestMiniredis_JointLimits(t *testing.T) {
	client := newMiniredis(t)
	testFiveOnMiniredis(t, limit.AllOf(
		redis.NewLimiter(client, limit.PerHour(9)),
		redis.NewSlidingLog(client, limit.WindowPolicy{Max: 8, Window: time.Hour}),
		redis.NewSlidingCounter(client, limit.WindowPolicy{Max: 7, Window: time.Hour}),
		redis.NewCooldown(client, limit.CooldownPolicy{Max: 6, Window: time.Hour, Penalty: time.Hour}, nil),
		redis.NewQuota(client, limit.QuotaPolicy{Max: 5, Period: limit.Month}),
	))
}

// testFiveOnMiniredis consumes from a limiter that admits five.
func testFiveOnMiniredis(t *testing.T, l limit.Limiter) {
	key := limit.Key{"user", "ann"}
	for remaining := int64(4); remaining >= 0; remaining-- {
		d, err := limit.Consume(t.Context(), l, key, 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Equal(t, remaining, d.Remaining)
	}
	d, err := limit.Consume(t.Context(), l, key, 1)
	require.NoError(t, err)
	assert.False(t, d.Allowed)
	assert.Positive(t, d.RetryAfter)
}

// TestMiniredis_PolicyChanges converts the bucket of another policy, in scripts with integers of 53 bits.
func TestMiniredis_PolicyChanges(t *testing.T) {
	client := newMiniredis(t)
	key := limit.Key{"user", "ann"}
	old := redis.NewLimiter(client, limit.PerHour(10).Named("messages"))
	d, err := limit.Consume(t.Context(), old, key, 8)
	require.NoError(t, err)
	require.EqualValues(t, 2, d.Remaining)

	other := redis.NewLimiter(client, limit.PerHour(100).Named("messages"))
	d, err = limit.Consume(t.Context(), other, key, 90)
	require.NoError(t, err)
	assert.True(t, d.Allowed)
	assert.EqualValues(t, 2, d.Remaining)
}

func TestMiniredis_Blocks(t *testing.T) {
	client := newMiniredis(t)
	l := redis.NewLimiter(client, limit.PerHour(10))
	key := limit.Key{"user", "ann"}
	require.NoError(t, l.Block(t.Context(), key, time.Minute))
	d, err := limit.Consume(t.Context(), l, key, 1)
	require.NoError(t, err)
	assert.Equal(t, []any{time.Minute, limit.Blocked}, []any{d.RetryAfter, d.Reason})
	require.NoError(t, l.Reset(t.Context(), key))
	d, err = limit.Consume(t.Context(), l, key, 1)
	require.NoError(t, err)
	assert.True(t, d.Allowed)
}

func TestMiniredis_Semaphore(t *testing.T) {
	client := newMiniredis(t)
	renders := redis.NewSemaphore(client, "renders", 1)
	key := limit.Key{"user", "ann"}
	first, err := renders.Acquire(t.Context(), key)
	require.NoError(t, err)
	require.NotNil(t, first.Release)
	second, err := renders.Acquire(t.Context(), key)
	require.NoError(t, err)
	assert.Nil(t, second.Release)
	first.Release()
}

func TestMiniredis_Budget(t *testing.T) {
	client := newMiniredis(t)
	w := redisbudget.New(client, "bot:", nil)
	c, err := w.TryAcquire(t.Context(), "r")
	require.NoError(t, err)
	require.Zero(t, c.Wait)
	require.NoError(t, w.Update(t.Context(), "r", c, outbound.Status{Limit: 2, Remaining: 1, ResetAfter: time.Minute}))
	_, err = w.TryAcquire(t.Context(), "r")
	require.NoError(t, err)
	c, err = w.TryAcquire(t.Context(), "r")
	require.NoError(t, err)
	assert.Positive(t, c.Wait)
}
