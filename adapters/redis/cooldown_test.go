package redis_test

import (
	"context"
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
	for name, client := range startServers(t) {
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
