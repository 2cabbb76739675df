package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// TestNewAll_OnRedisDeniedMessageTakesFromNoBucket runs on one server, which decides in one
// step, and on a Cluster, where the limiters refund.
func TestNewAll_OnRedisDeniedMessageTakesFromNoBucket(t *testing.T) {
	ofUsers, ofTenants := limit.PerHour(3).Named("user"), limit.PerHour(5).Named("tenant")
	for name, newLimiters := range map[string]func(*testing.T) (users, tenants limit.Limiter){
		"server": func(t *testing.T) (users, tenants limit.Limiter) {
			client := redistest.Start(t).Client(t)
			return redis.NewLimiter(client, ofUsers), redis.NewLimiter(client, ofTenants)
		},
		"cluster": func(t *testing.T) (users, tenants limit.Limiter) {
			client := redistest.StartCluster(t).Client(t)
			return redis.NewLimiter(client, ofUsers), redis.NewLimiter(client, ofTenants)
		},
	} {
		if name == "cluster" && !testscale.Pick(false, true) {
			continue // it takes two seconds to start
		}
		t.Run(name, func(t *testing.T) {
			users, tenants := newLimiters(t)
			admit := ratelimit.NewAll([]ratelimit.Rule{
				{Limiter: users, Key: ratelimit.KeyPerUser}, {Limiter: tenants, Key: perTenant},
			}, &ratelimit.Options{Timeout: 10 * time.Second})
			admitted := map[string]int{}
			for range 10 {
				for _, name := range []string{"ann", "bob"} {
					if admit(t.Context(), from(name)) == nil {
						admitted[name]++
					}
				}
			}
			assert.Equal(t, map[string]int{"ann": 3, "bob": 2}, admitted)
			require.Zero(t, remaining(t, tenants, limit.Key{"tenant"}))
			assert.EqualValues(t, 1, remaining(t, users, user("bob")), "a denied message was charged to the user")
		})
	}
}

func TestNewAll_PanicsIfLimitersOnRedisShareBuckets(t *testing.T) {
	client, other := redistest.Start(t).Client(t), redistest.Start(t).Client(t)
	share := "ratelimit: the limiters of rules 0 and 1 share buckets; pass one limiter for both, or give their policies different names"
	one, named := redis.NewLimiter(client, limit.PerSecond(5)), redis.NewLimiter(client, limit.PerSecond(5).Named("chat"))
	quota := limit.QuotaPolicy{Max: 10, Period: limit.Day}
	tokyo := quota
	tokyo.Location = time.FixedZone("Asia/Tokyo", 9*3600)
	for _, tt := range []struct {
		name string
		a, b limit.Limiter
		want any // of the panic; nil if the rules are valid
	}{
		{"no name and the same numbers", one, redis.NewLimiter(client, limit.PerSecond(5)), share},
		{"the same name", named, redis.NewLimiter(client, limit.PerSecond(6).Named("chat")), share},
		{"quotas of the same numbers", redis.NewQuota(client, quota), redis.NewQuota(client, quota), share},
		{"one limiter", one, one, nil},
		{"no name and different time zones", redis.NewQuota(client, quota), redis.NewQuota(client, tokyo), nil},
		{"no name and the same rate in other numbers", redis.NewLimiter(client, limit.PerSecond(1).Burst(60)), redis.NewLimiter(client, limit.PerMinute(60)), nil},
		{"different namespaces", named, redis.NewLimiter(redis.WithNamespace(client, "shop"), limit.PerSecond(5).Named("chat")), nil},
		{"different kinds", named, redis.NewQuota(client, limit.QuotaPolicy{Name: "chat", Max: 5}), nil},
		{"no name and different numbers", one, redis.NewLimiter(client, limit.PerSecond(6)), nil},
		{"different names", named, redis.NewLimiter(client, limit.PerSecond(5).Named("user")), nil},
		{"different servers", named, redis.NewLimiter(other, limit.PerSecond(5).Named("chat")), nil},
		{"in memory", memory.NewLimiter(limit.PerSecond(5)), memory.NewLimiter(limit.PerSecond(5)), nil},
	} {
		newAll := func() { ratelimit.NewAll([]ratelimit.Rule{{Limiter: tt.a}, {Limiter: tt.b}}, nil) }
		if tt.want == nil {
			assert.NotPanics(t, newAll, tt.name)
			continue
		}
		assert.PanicsWithValue(t, tt.want, newAll, tt.name)
	}
}
