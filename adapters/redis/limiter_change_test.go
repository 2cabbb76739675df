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

func TestLimiter_JointAndReservedFloodsCauseFewRoundTrips(t *testing.T) {
	t.Parallel()
	const calls = 300
	for name, call := range map[string]func(l, other *redis.Limiter) (limit.Decision, error){
		"AllOf": func(l, other *redis.Limiter) (limit.Decision, error) {
			return limit.Consume(t.Context(), limit.AllOf(other, l), user("ann"), 1)
		},
		"ConsumeAll": func(l, other *redis.Limiter) (limit.Decision, error) {
			return limit.ConsumeAll(t.Context(), limit.Request{Limiter: other, Key: user("bob"), Cost: 1}, limit.Request{Limiter: l, Key: user("ann"), Cost: 1})
		},
		"Reserve": func(l, _ *redis.Limiter) (limit.Decision, error) {
			return limit.Reserve(t.Context(), l, user("ann"), 1, time.Minute)
		},
		"Reserve of AllOf": func(l, other *redis.Limiter) (limit.Decision, error) {
			return limit.Reserve(t.Context(), limit.AllOf(other, l), user("ann"), 1, time.Minute)
		},
		"ConsumeKeeping": func(l, _ *redis.Limiter) (limit.Decision, error) {
			return limit.ConsumeKeeping(t.Context(), l, user("ann"), 1, 1)
		},
		"ConsumeUpTo": func(l, _ *redis.Limiter) (limit.Decision, error) {
			_, d, err := limit.ConsumeUpTo(t.Context(), l, user("ann"), 5)
			return d, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			client := server.Client(t)
			l := redis.NewLimiter(client, limit.PerHour(3).Named("few"))
			other := redis.NewLimiter(client, limit.PerHour(1_000_000).Named("many"))
			require.NoError(t, client.FlushAll(t.Context()).Err())
			allowed := 0
			start := time.Now()
			for range calls {
				d, err := call(l, other)
				require.NoError(t, err)
				if d.Allowed {
					allowed++
				} else {
					assert.InDelta(t, 1200, d.RetryAfter.Seconds(), 1210)
					assert.EqualValues(t, 3, d.Limit)
				}
			}
			require.Less(t, allowed, 5)
			roundTrips := server.CommandStats(t)["evalsha"] + server.CommandStats(t)["eval"]
			assert.LessOrEqual(t, roundTrips, int64(5+time.Since(start)/time.Second), "of %d calls", calls)
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
