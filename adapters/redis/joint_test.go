package redis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
)

// TestAllOf_DeniedFloodOfDifferentKindsCausesFewRoundTrips floods limiters that cannot decide in one
// step, each of which denies in one of the cases.
func TestAllOf_DeniedFloodOfDifferentKindsCausesFewRoundTrips(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	for name, few := range map[string]limit.Limiter{
		"quota":    redis.NewQuota(client, limit.QuotaPolicy{Name: "few", Max: 2, Period: limit.Month}),
		"log":      redis.NewSlidingLog(client, limit.WindowPolicy{Name: "few", Max: 2, Window: time.Hour}),
		"counter":  redis.NewSlidingCounter(client, limit.WindowPolicy{Name: "few", Max: 2, Window: time.Hour}),
		"cooldown": redis.NewCooldown(client, limit.CooldownPolicy{Name: "few", Max: 2, Window: time.Hour, Penalty: time.Hour}, nil),
		"bucket":   redis.NewLimiter(client, limit.PerHour(2).Named("few")),
	} {
		t.Run(name, func(t *testing.T) {
			many := redis.NewSlidingCounter(client, limit.WindowPolicy{Name: "many " + name, Max: 1000, Window: time.Hour})
			inMemory := memory.NewLimiter(limit.PerHour(2))
			for _, both := range []limit.Limiter{
				limit.AllOf(many, few), limit.AllOf(few, many), limit.AllOf(few, memory.NewLimiter(limit.PerHour(1000))),
				limit.AllOf(many, inMemory), limit.AllOf(limit.AllOf(many, inMemory), memory.NewQuota(limit.QuotaPolicy{Max: 1000})),
			} {
				require.NoError(t, client.ConfigResetStat(t.Context()).Err())
				start := time.Now()
				for range 300 {
					consume(t, both, user("ann"), 1)
				}
				seconds := int64(time.Since(start)/time.Second) + 1
				assert.LessOrEqual(t, server.CommandStats(t)["evalsha"], 6+3*seconds, "round trips of 300 calls")
				d, err := limit.Inspect(t.Context(), many, user("ann"))
				require.NoError(t, err)
				assert.GreaterOrEqual(t, d.Remaining, int64(996), "what denied calls took is undone")
			}
		})
	}
}
