package redis_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/batch/batchtest"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
)

func user(name string) limit.Key { return limit.Key{"user", "acme", name, "SAY"} }

func consume(t testing.TB, l limit.Limiter, key limit.Key, cost int64) limit.Decision {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	d, err := limit.Consume(ctx, l, key, cost)
	require.NoError(t, err)
	return d
}

func TestLimiter_DecisionIsOneScriptAndAtMostOneWrite(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	l := redis.NewLimiter(client, limit.PerHour(1))
	consume(t, l, user("warm up"), 1)
	server.ResetStats(t)
	assert.True(t, consume(t, l, user("ann"), 1).Allowed)
	stats := server.CommandStats(t)
	assert.Equal(t, []int64{1, 1, 1, 1}, []int64{stats["evalsha"], stats["time"], stats["get"], stats["set"]})

	server.ResetStats(t)
	other := redis.NewLimiter(client, limit.PerHour(1)) // has no denial in its cache
	assert.False(t, consume(t, other, user("ann"), 1).Allowed)
	stats = server.CommandStats(t)
	assert.Equal(t, []int64{1, 1, 1, 0}, []int64{stats["evalsha"], stats["time"], stats["get"], stats["set"]})
}

func TestLimiter_FullBucketExpires(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	l := redis.NewLimiter(client, limit.PerMinute(7).Named("say: hello"))
	d := consume(t, l, user("ann"), 3)
	const key = "penstock:limit:say%3A%20hello:user:acme:ann:SAY"
	assert.Equal(t, []string{key}, client.Keys(t.Context(), "*").Val())
	left := client.PTTL(t.Context(), key).Val()
	assert.LessOrEqual(t, left, d.ResetAfter+time.Millisecond)
	assert.Greater(t, left, d.ResetAfter-5*time.Second)
	assert.Less(t, client.MemoryUsage(t.Context(), key).Val(), int64(200))

	fast := redis.NewLimiter(client, limit.PerSecond(1000).Named("fast"))
	consume(t, fast, user("ann"), 1)
	require.Eventually(t, func() bool { return client.DBSize(t.Context()).Val() == 1 }, time.Minute, time.Millisecond)
}

func TestLimiter_UnnamedPoliciesAreSeparate(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	large, small := redis.NewLimiter(client, limit.PerHour(200)), redis.NewLimiter(client, limit.PerHour(10))
	assert.EqualValues(t, 199, consume(t, large, user("ann"), 1).Remaining)
	assert.EqualValues(t, 5, consume(t, small, user("ann"), 5).Remaining)
	assert.EqualValues(t, 198, consume(t, large, user("ann"), 1).Remaining)
	assert.EqualValues(t, 197, consume(t, redis.NewLimiter(client, limit.PerHour(200)), user("ann"), 1).Remaining, "the same policy")
}

func TestLimiter_IntervalBound(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	one := redis.NewLimiter(server.Client(t), limittest.IntervalBoundPolicy().Named("one"))
	another := redis.NewLimiter(server.Client(t), limittest.IntervalBoundPolicy().Named("one"))
	limittest.IntervalBound(t, one, another)
}

func TestLimiter_UnknownScriptIsResent(t *testing.T) {
	t.Parallel()
	servers := redistest.StartEach(t)
	var sentinel *redistest.Sentinel
	if testscale.Pick(false, true) {
		sentinel = redistest.StartSentinel(t)
		servers["sentinel"] = sentinel.Client(t)
	}
	for name, client := range servers {
		t.Run(name, func(t *testing.T) {
			l := redis.NewLimiter(client, limit.PerHour(1000))
			for n := range 3 {
				var wg sync.WaitGroup
				for i := range 100 {
					wg.Go(func() { assert.EqualValues(t, 999-n, consume(t, l, user(string(rune('a'+i))), 1).Remaining) })
				}
				wg.Wait()
				if name == "sentinel" {
					continue
				}
				require.NoError(t, client.ScriptFlush(t.Context()).Err())
			}
			if name == "sentinel" {
				sentinel.Promote(t)
				require.Eventually(t, func() bool {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					d, err := limit.Consume(ctx, l, user("after"), 1)
					return err == nil && d.Allowed
				}, time.Minute, 10*time.Millisecond)
			}
		})
	}
}

// TestLimiter_NeverChargesTwice closes connections while calls are in flight, with a client that
// retries.
func TestLimiter_NeverChargesTwice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	client := goredis.NewClient(&goredis.Options{Addr: proxy.Addr, MaxRetries: 10, MinRetryBackoff: -1})
	t.Cleanup(func() { _ = client.Close() })
	policy := limit.PerHour(1).Burst(50_000)
	batchtest.NeverChargesTwice(t, redis.NewLimiter(client, policy), redis.NewLimiter(server.Client(t), policy), func() {
		proxy.Cut()
		proxy.Restore()
	})
}

// TestLimiter_ConsumeReturnsAtDeadline covers clients with different options for deadlines.
func TestLimiter_ConsumeReturnsAtDeadline(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*goredis.Options){
		"default options":     func(*goredis.Options) {},
		"ignores deadlines":   func(o *goredis.Options) { o.ContextTimeoutEnabled, o.ReadTimeout = false, -1 },
		"honors deadlines":    func(o *goredis.Options) { o.ContextTimeoutEnabled = true },
		"with one connection": func(o *goredis.Options) { o.PoolSize = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.StartProxy(t, server.Addr)
			client := server.Client(t, edit, func(o *goredis.Options) { o.Addr = proxy.Addr })
			l := redis.NewLimiter(client, limit.PerHour(1000))
			consume(t, l, user("ann"), 1)
			proxy.Stall()
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
					defer cancel()
					start := time.Now()
					d, err := limit.Consume(ctx, l, user("ann"), 1)
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.Zero(t, d)
					assert.Less(t, time.Since(start), 20*time.Second)
				})
			}
			wg.Wait()
			proxy.Cut() // the responses never arrive
			proxy.Restore()
			require.Eventually(t, func() bool {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_, err := limit.Consume(ctx, l, user("bob"), 1)
				return err == nil
			}, time.Minute, 10*time.Millisecond)
		})
	}
}

func TestLimiter_CanceledContextSendsNothing(t *testing.T) {
	t.Parallel()
	client := goredis.NewClient(&goredis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		t.Error("dialed")
		return nil, errors.New("no")
	}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := limit.Consume(ctx, redis.NewLimiter(client, limit.PerHour(1)), user("ann"), 1)
	assert.ErrorIs(t, err, context.Canceled)
	_ = client.Close()
}

func TestConstructors_InvalidArgumentsPanic(t *testing.T) {
	t.Parallel()
	assert.PanicsWithValue(t, "redis: a limiter needs a client", func() { redis.NewLimiter(nil, limit.PerHour(1)) })
	assert.PanicsWithValue(t, "redis: NewBroker needs a client", func() { redis.NewBroker(nil) })
	assert.PanicsWithValue(t, "redis: NewBroker cannot use a *redis.Ring; use a client of one server, of Sentinel or of a Cluster", func() {
		redis.NewBroker(goredis.NewRing(&goredis.RingOptions{}))
	})
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer func() { _ = client.Close() }()
	assert.Panics(t, func() { redis.NewLimiter(client, limit.Policy{}) })
	assert.Panics(t, func() { redis.NewCooldown(client, limit.CooldownPolicy{}, nil) })
	_, err := limit.Consume(t.Context(), redis.NewLimiter(client, limit.PerHour(1)), user("ann"), 1)
	assert.Error(t, err)
}

// TestLimiter_RecoversFromOutages makes the server unavailable in several ways.
func TestLimiter_RecoversFromOutages(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		begin, end func(*redistest.Server)
	}{
		"stopped":       {(*redistest.Server).Stop, (*redistest.Server).Restart},
		"hung":          {(*redistest.Server).Pause, (*redistest.Server).Resume},
		"read-only":     {makeReplica, makeMaster},
		"restarting":    {(*redistest.Server).Restart, func(*redistest.Server) {}},
		"not logged in": {setPassword, clearPassword},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			l := redis.NewLimiter(server.Client(t), limit.PerMinute(1_000_000))
			consume(t, l, user("ann"), 1)
			var failed, worst atomic.Int64
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
						start := time.Now()
						d, err := limit.Consume(ctx, l, user("ann"), 1)
						cancel()
						if took := time.Since(start).Milliseconds(); took > worst.Load() {
							worst.Store(took)
						}
						if err != nil {
							failed.Add(1)
							assert.Zero(t, d)
						} else {
							assert.True(t, d.Allowed, "an outage is no denial")
						}
					}
				})
			}
			tt.begin(server)
			if name != "restarting" {
				require.Eventually(t, func() bool { return failed.Load() > 10 }, time.Minute, time.Millisecond)
			}
			tt.end(server)
			require.Eventually(t, func() bool {
				before := failed.Load()
				time.Sleep(200 * time.Millisecond) // no call fails in this time
				return failed.Load() == before
			}, time.Minute, time.Millisecond, "it recovers without help")
			close(stop)
			wg.Wait()
			assert.Less(t, worst.Load(), int64(20_000))
		})
	}
}

func admin(s *redistest.Server, args ...any) {
	client := goredis.NewClient(&goredis.Options{Addr: s.Addr, Password: "secret"})
	defer func() { _ = client.Close() }()
	if err := client.Do(context.Background(), args...).Err(); err != nil {
		client = goredis.NewClient(&goredis.Options{Addr: s.Addr})
		_ = client.Do(context.Background(), args...).Err()
		_ = client.Close()
	}
}

func makeReplica(s *redistest.Server) { admin(s, "replicaof", "127.0.0.1", "1") }

func makeMaster(s *redistest.Server) { admin(s, "replicaof", "no", "one") }

func setPassword(s *redistest.Server) {
	admin(s, "config", "set", "requirepass", "secret")
	admin(s, "client", "kill", "type", "normal")
}

func clearPassword(s *redistest.Server) { admin(s, "config", "set", "requirepass", "") }
