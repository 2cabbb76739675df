package ratelimit_test

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// TestNewAll_OnRedisDeniedMessageTakesFromNoBucket runs on one server, which decides in one
// step, and on a Cluster, where the limiters refund.
func TestNewAll_OnRedisDeniedMessageTakesFromNoBucket(t *testing.T) {
	for name, connect := range map[string]func(*testing.T) goredis.UniversalClient{
		"server":  func(t *testing.T) goredis.UniversalClient { return redistest.Start(t).Client(t) },
		"cluster": func(t *testing.T) goredis.UniversalClient { return redistest.StartCluster(t).Client(t) },
	} {
		t.Run(name, func(t *testing.T) {
			client := connect(t)
			users := redis.NewLimiter(client, limit.PerHour(3).Named("user"))
			tenants := redis.NewLimiter(client, limit.PerHour(5).Named("tenant"))
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
