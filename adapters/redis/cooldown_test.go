package redis_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
		keys := []limit.Key{{}, user("ann"), user("bob")}
		for _, key := range keys {
			consume(t, c, key, 1)
			consume(t, other, key, 1)
		}
		require.NoError(t, c.ResetAll(t.Context()), name)
		for _, key := range keys {
			assert.True(t, consume(t, c, key, 1).Allowed, name)
			assert.False(t, consume(t, other, key, 1).Allowed, name)
		}
	}
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
