package redis_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
)

func TestCooldown_ResetAll(t *testing.T) {
	t.Parallel()
	for name, client := range redistest.StartEach(t) {
		policy := limit.CooldownPolicy{Name: "a*", Max: 1, Window: time.Hour, Penalty: time.Hour}
		c := redis.NewCooldown(client, policy, nil)
		policy.Name = "ab"
		other := redis.NewCooldown(client, policy, nil)
		for _, who := range []string{"ann", "bob", "eve"} {
			consume(t, c, user(who), 1)
			consume(t, other, user(who), 1)
		}
		require.NoError(t, c.ResetAll(t.Context()), name)
		for _, who := range []string{"ann", "bob", "eve"} {
			assert.True(t, consume(t, c, user(who), 1).Allowed, name)
			assert.False(t, consume(t, other, user(who), 1).Allowed, name)
		}
	}
}

func TestCooldown_InvalidArguments(t *testing.T) {
	t.Parallel()
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer func() { _ = client.Close() }()
	right := limit.CooldownPolicy{Max: 1, Window: time.Second, Penalty: time.Second}
	assert.Panics(t, func() { redis.NewCooldown(client, limit.CooldownPolicy{}, nil) })
	assert.Panics(t, func() { redis.NewCooldown(nil, right, nil) })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	d, err := limit.Consume(ctx, redis.NewCooldown(client, right, nil), user("ann"), 1)
	assert.Error(t, err)
	assert.Zero(t, d, "an outage is no denial")
}

func TestCooldown_LoweredMax(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t)
	p := limit.CooldownPolicy{Name: redistest.Prefix(t), Max: 10, Window: time.Minute, Penalty: time.Minute}
	_, err := limit.Consume(t.Context(), redis.NewCooldown(client, p, nil), limit.Key{"ann"}, 10)
	require.NoError(t, err)
	p.Max = 5
	d, err := limit.Consume(t.Context(), redis.NewCooldown(client, p, nil), limit.Key{"ann"}, 0)
	require.NoError(t, err)
	assert.Zero(t, d.Remaining)
}

func TestCooldown_ResetAllRemovesKeyWithoutParts(t *testing.T) {
	t.Parallel()
	c := redis.NewCooldown(redistest.Shared(t), limit.CooldownPolicy{Name: redistest.Prefix(t), Max: 1, Window: time.Minute, Penalty: time.Minute}, nil)
	_, err := limit.Consume(t.Context(), c, limit.Key{}, 1)
	require.NoError(t, err)
	require.NoError(t, c.ResetAll(t.Context()))
	n, err := c.Count(t.Context(), limit.Key{})
	require.NoError(t, err)
	assert.Zero(t, n)
}

func TestCooldown_SharedByProcesses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	policy := limit.CooldownPolicy{Name: "b[u]rst*", Max: 50, Window: time.Hour, Penalty: time.Hour}
	var penalties, allowed atomic.Int64
	var wg sync.WaitGroup
	var cooldowns []*redis.Cooldown
	for range 4 {
		c := redis.NewCooldown(server.Client(t), policy, func(limit.Penalty) { penalties.Add(1) })
		cooldowns = append(cooldowns, c)
		for range 8 {
			wg.Go(func() {
				for range 10 {
					if consume(t, c, user("ann"), 1).Allowed {
						allowed.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	assert.EqualValues(t, 50, allowed.Load())
	assert.EqualValues(t, 1, penalties.Load(), "the audit hook is called once")
	ttl := server.Client(t).PTTL(t.Context(), "penstock:cooldown:b[u]rst*:user:acme:ann:SAY").Val()
	assert.InDelta(t, time.Hour, ttl, float64(time.Minute))

	server.ResetStats(t)
	for range 1000 {
		assert.Equal(t, limit.InCooldown, consume(t, cooldowns[0], user("ann"), 1).Reason)
	}
	assert.LessOrEqual(t, server.CommandStats(t)["evalsha"], int64(10), "denied calls cause few round trips")

	c := cooldowns[0]
	count, err := c.Count(t.Context(), user("ann"))
	require.NoError(t, err)
	assert.EqualValues(t, 50, count)
	require.NoError(t, c.Reset(t.Context(), user("ann")))
	assert.True(t, consume(t, c, user("ann"), 50).Allowed)
}
