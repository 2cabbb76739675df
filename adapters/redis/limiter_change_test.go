package redis_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
)

// TestLimiter_ProcessesWithDifferentNumbersKeepOneLimit runs limiters as the processes of a
// rolling deployment do, for a second: one of 10 per second and one of 1 per second.
func TestLimiter_ProcessesWithDifferentNumbersKeepOneLimit(t *testing.T) {
	t.Parallel()
	fast, slow := limit.PerSecond(10).Named("p"), limit.PerSecond(1).Burst(10).Named("p")
	for name, newLimiter := range map[string]func(*redistest.Server, limit.Policy) limit.Limiter{
		"limiter": func(s *redistest.Server, p limit.Policy) limit.Limiter { return redis.NewLimiter(s.Client(t), p) },
		"AllOf": func(s *redistest.Server, p limit.Policy) limit.Limiter {
			client := s.Client(t)
			return limit.AllOf(redis.NewLimiter(client, p), redis.NewLimiter(client, limit.PerSecond(1_000_000).Named("q")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			limiters := []limit.Limiter{newLimiter(server, fast), newLimiter(server, slow)}
			granted := 0
			start := time.Now()
			for n := 0; n < 20 || time.Since(start) < time.Second; n++ { // 20 also on a busy machine
				if consume(t, limiters[n%2], user("ann"), 1).Allowed {
					granted++
				}
			}
			took := time.Since(start).Seconds()
			assert.GreaterOrEqual(t, granted, 10)
			assert.LessOrEqual(t, float64(granted), 10+10*took)
			assert.Positive(t, server.CommandStats(t)["evalsha"])
		})
	}
}

// TestLimiter_SetPolicyWhileCallsShareRoundTrips changes the policy while calls with both
// policies wait for the same round trip.
func TestLimiter_SetPolicyWhileCallsShareRoundTrips(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	large, small := limit.PerHour(1).Burst(1000).Named("p"), limit.PerHour(2).Burst(500).Named("p")
	l := redis.NewLimiter(server.Client(t), large)
	var granted [8]int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	changes := 0
	wg.Go(func() {
		for ; ; changes++ {
			select {
			case <-stop:
				return
			default:
				assert.NoError(t, l.SetPolicy([]limit.Policy{large, small}[changes%2]))
				runtime.Gosched() // so that the callers are not starved on a busy machine
			}
		}
	})
	var callers sync.WaitGroup
	for n := range granted {
		callers.Go(func() {
			for range 500 {
				if consume(t, l, user("ann"), 1).Allowed {
					granted[n]++
				}
			}
		})
	}
	callers.Wait()
	close(stop)
	wg.Wait()
	require.Greater(t, changes, 1000)
	var sum int64
	for _, n := range granted {
		sum += n
	}
	require.NoError(t, l.SetPolicy(large))
	left := consume(t, l, user("ann"), 0).Remaining
	assert.EqualValues(t, 1000, sum+left)
}
