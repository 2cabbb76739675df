package redisbudget_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/outbound"
	"github.com/penstock-go/penstock/outbound/outboundtest"
	"github.com/penstock-go/penstock/outbound/redisbudget"
)

func TestBudget_PassesTheConformanceSuite(t *testing.T) {
	t.Parallel()
	for name, client := range redistest.StartEach(t) {
		for _, c := range outboundtest.Cases() {
			t.Run(name+" "+c.Name, func(t *testing.T) {
				t.Parallel()
				var prefixes []string
				c.Run(t, outboundtest.Harness{
					New: func(o *outbound.BudgetOptions) outbound.Budget {
						prefixes = append(prefixes, "{"+redistest.Prefix(t)+"}")
						return redisbudget.New(client, prefixes[len(prefixes)-1], o)
					},
					StepClock: func(d time.Duration) {
						for _, prefix := range prefixes {
							stepClock(t, client, prefix, d)
						}
					},
				})
			})
		}
	}
}

// stepClock leaves the keys as a step of the server's clock would: every stored time moves by -d
// relative to the clock.
func stepClock(t *testing.T, client goredis.UniversalClient, prefix string, d time.Duration) {
	ctx := t.Context()
	for _, route := range []string{"a", "b", "c", "window", "rejected", "unlimited", "unknown"} {
		stepRequests(t, client, prefix+route+":in-flight", d)
		for _, field := range []string{"latest", "at"} {
			key := prefix + route + ":window"
			if n, _ := client.HGet(ctx, key, field).Int64(); n > 0 {
				require.NoError(t, client.HSet(ctx, key, field, n-d.Milliseconds()).Err())
			}
		}
		for _, name := range []string{":window", ":remaining", ":limit"} {
			stepExpiry(t, client, prefix+route+name, d)
		}
	}
	stepRequests(t, client, prefix+"global:requests", d)
	var setAt int64
	if _, err := fmt.Sscanf(client.Get(ctx, prefix+"global").Val(), "set at %d", &setAt); err == nil {
		value := fmt.Sprint("set at ", setAt-d.Milliseconds())
		require.NoError(t, client.Set(ctx, prefix+"global", value, goredis.KeepTTL).Err())
	}
	stepExpiry(t, client, prefix+"global", d)
}

func stepRequests(t *testing.T, client goredis.UniversalClient, key string, d time.Duration) {
	for _, request := range client.ZRange(t.Context(), key, 0, -1).Val() {
		require.NoError(t, client.ZIncrBy(t.Context(), key, -float64(d.Milliseconds()), request).Err())
	}
	stepExpiry(t, client, key, d)
}

func stepExpiry(t *testing.T, client goredis.UniversalClient, key string, d time.Duration) {
	if ttl := client.PTTL(t.Context(), key).Val(); ttl >= 0 {
		require.NoError(t, client.PExpire(t.Context(), key, ttl-d).Err()) // deletes the key if the result is negative
	}
}

func TestNewBudget_PanicsIfInvalid(t *testing.T) {
	t.Parallel()
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
	cluster := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer func() { _, _ = client.Close(), cluster.Close() }()
	assert.Panics(t, func() { redisbudget.New(nil, "{bot}:", nil) })
	assert.Panics(t, func() { redisbudget.New(client, "bot:", &outbound.BudgetOptions{Lease: -1}) })
	assert.NotPanics(t, func() { redisbudget.New(client, "", nil) })
	assert.NotPanics(t, func() { redisbudget.New(cluster, "a{bot}:", nil) })
	for _, prefix := range []string{"", "bot:", "{}bot:", "{bot", "bot}{"} {
		assert.PanicsWithValue(t, fmt.Sprintf("redisbudget: New with prefix %q and a *redis.ClusterClient; it must have a hash tag, such as \"{mybot}:\"", prefix),
			func() { redisbudget.New(cluster, prefix, nil) })
	}
}

// A testBudget is a Budget with helpers for one route, "r", and access to the keys that other
// clients of the Spectacles convention use.
type testBudget struct {
	*redisbudget.Budget

	t      *testing.T
	client *goredis.Client
	prefix string
}

const testLease = time.Second

func newTestBudget(t *testing.T) testBudget {
	client, prefix := redistest.Start(t).Client(t), redistest.Prefix(t)
	return testBudget{redisbudget.New(client, prefix, &outbound.BudgetOptions{Lease: testLease}), t, client, prefix}
}

func (s testBudget) tryAcquire() outbound.Grant {
	s.t.Helper()
	return s.tryAcquireRoute("r")
}

func (s testBudget) tryAcquireRoute(route string) outbound.Grant {
	s.t.Helper()
	c, err := s.TryAcquire(s.t.Context(), route)
	require.NoError(s.t, err)
	return c
}

// acquireUpTo acquires requests until one must wait, at most limit.
func (s testBudget) acquireUpTo(limit int) (grants []outbound.Grant) {
	s.t.Helper()
	for range limit {
		c := s.tryAcquire()
		if c.Wait > 0 {
			break
		}
		grants = append(grants, c)
	}
	return grants
}

// acquire waits until a request is permitted.
func (s testBudget) acquire() {
	s.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		c := s.tryAcquire()
		if c.Wait == 0 {
			return
		}
		time.Sleep(c.Wait)
	}
	require.FailNow(s.t, "no request is permitted within 10 seconds")
}

func (s testBudget) respond(c outbound.Grant, status outbound.Status) {
	s.t.Helper()
	require.NoError(s.t, s.Update(s.t.Context(), "r", c, status))
}

func (s testBudget) remaining() string {
	return s.client.Get(s.t.Context(), s.prefix+"r:remaining").Val()
}

func (s testBudget) ttl(key string) time.Duration {
	return s.client.PTTL(s.t.Context(), s.prefix+key).Val()
}

func (s testBudget) set(key string, value any, ttl time.Duration) {
	s.t.Helper()
	require.NoError(s.t, s.client.Set(s.t.Context(), s.prefix+key, value, ttl).Err())
}

// requireExpiry fails if a key never expires.
func (s testBudget) requireExpiry() {
	s.t.Helper()
	keys := s.client.Scan(s.t.Context(), 0, s.prefix+"*", 1000).Iterator()
	for keys.Next(s.t.Context()) {
		ttl := s.client.PTTL(s.t.Context(), keys.Val()).Val()
		require.NotEqual(s.t, time.Duration(-1), ttl, keys.Val())
	}
	require.NoError(s.t, keys.Err())
}

// Each test below covers one flaw of the algorithm in the Spectacles convention
// (https://github.com/spec-tacles/spec, ratelimits.md). Its comment describes the flaw.

// Flaw: a global key without an expiry is ignored.
func TestBudget_GlobalKeyWithoutExpiryBlocksForOneLease(t *testing.T) {
	t.Parallel()
	s := newTestBudget(t)
	s.set("global", "whatever", 0)
	start := time.Now()
	assert.Positive(t, s.tryAcquire().Wait)
	s.acquire() // the client that should set the expiry has died
	assert.GreaterOrEqual(t, time.Since(start), testLease)
}

// Flaw: a limit of 0 permits every request, with -1 remaining.
func TestBudget_LimitOfZeroPermitsNothing(t *testing.T) {
	t.Parallel()
	s := newTestBudget(t)
	s.respond(s.tryAcquire(), outbound.ParseHeaders(200, http.Header{"X-Ratelimit-Limit": {"0"}, "X-Ratelimit-Reset-After": {"60"}}))
	assert.Positive(t, s.tryAcquire().Wait)
	assert.Equal(t, "0", s.remaining())

	other := newTestBudget(t)
	other.set("r:limit", 0, 0)
	assert.Len(t, other.acquireUpTo(3), 1, "0 may mean that there is no limit; one request finds out")
	unlimited := newTestBudget(t)
	unlimited.set("r:limit", -1, 0)
	assert.Len(t, unlimited.acquireUpTo(100), 100, "in the convention, -1 means that there is no limit")
}

// Flaw: the keys of a route are in different hash slots, and all bots share one global key.
func TestBudget_PrefixesAreIndependent(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Start(t).Client(t), redistest.Prefix(t)
	budgets := map[string]*redisbudget.Budget{}
	for _, bot := range []string{"one", "two"} {
		budgets[bot] = redisbudget.New(client, prefix+"{"+bot+"}:", nil)
	}
	c, err := budgets["one"].TryAcquire(t.Context(), "r{x}")
	require.NoError(t, err)
	require.NoError(t, budgets["one"].Update(t.Context(), "r{x}", c, outbound.Status{RetryAfter: time.Minute, Global: true}))
	c, err = budgets["one"].TryAcquire(t.Context(), "other")
	require.NoError(t, err)
	assert.Positive(t, c.Wait)
	c, err = budgets["two"].TryAcquire(t.Context(), "r{x}")
	require.NoError(t, err)
	assert.Zero(t, c.Wait)
	// On a Cluster, the conformance suite runs in TestBudget_PassesTheConformanceSuite.
}

// Flaw: a limit never expires.
func TestBudget_EveryKeyExpires(t *testing.T) {
	t.Parallel()
	s := newTestBudget(t)
	s.respond(s.tryAcquire(), outbound.Status{Limit: 5, Remaining: 4, ResetAfter: time.Minute})
	s.respond(s.tryAcquire(), outbound.Status{RetryAfter: time.Minute, Global: true})
	assert.InDelta(t, 7*24*time.Hour, s.ttl("r:limit"), float64(time.Minute))
	s.requireExpiry()
	unlimited := newTestBudget(t)
	unlimited.respond(unlimited.tryAcquire(), outbound.Status{Limit: outbound.Unlimited})
	assert.InDelta(t, time.Hour, unlimited.ttl("r:limit"), float64(time.Minute))
	unlimited.requireExpiry()
	limited := redisbudget.New(s.client, s.prefix, &outbound.BudgetOptions{GlobalLimit: 5})
	_, err := limited.TryAcquire(t.Context(), "x")
	require.NoError(t, err)
	s.requireExpiry()
}

// Flaw: a client without the script needs five round trips per request.
func TestBudget_TryAcquireIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := redisbudget.New(server.Client(t), "{bot}:", nil)
	tryAcquire := func() outbound.Grant {
		c, err := s.TryAcquire(t.Context(), "r")
		require.NoError(t, err)
		return c
	}
	require.NoError(t, s.Update(t.Context(), "r", tryAcquire(), outbound.Status{Limit: 1000, Remaining: 999, ResetAfter: time.Minute}))
	server.ResetStats(t)
	for range 100 {
		require.Zero(t, tryAcquire().Wait)
	}
	stats := server.CommandStats(t)
	assert.EqualValues(t, 100, stats["evalsha"])
	total := int64(0)
	for name, calls := range stats {
		if name != "config|resetstat" && name != "info" {
			total += calls
		}
	}
	assert.LessOrEqual(t, total, int64(1200), "%v", stats)
}

// TestBudget_SurvivesARestart restarts a Redis that loses its scripts and keys.
func TestBudget_SurvivesARestart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := redisbudget.New(server.Client(t), "{bot}:", nil)
	_, err := w.TryAcquire(t.Context(), "r")
	require.NoError(t, err)
	server.Restart()
	require.Eventually(t, func() bool {
		c, err := w.TryAcquire(t.Context(), "r")
		return err == nil && c.Wait == 0
	}, time.Minute, time.Millisecond)
	server.Stop()
	_, err = w.TryAcquire(t.Context(), "r")
	assert.Error(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.TryAcquire(ctx, "r")
	assert.ErrorIs(t, err, context.Canceled)
}

func TestBudget_PrecedesItsPrefixWithTheNamespaceOfTheClient(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	for _, c := range []goredis.UniversalClient{client, redis.WithNamespace(client, "shop")} {
		grant, err := redisbudget.New(c, "{bot}:", nil).TryAcquire(t.Context(), "r")
		require.NoError(t, err)
		require.Zero(t, grant.Wait)
	}
	assert.ElementsMatch(t, []string{"{bot}:r:in-flight", "{bot}:r:remaining", "{bot}:r:window", "shop:{bot}:r:in-flight", "shop:{bot}:r:remaining", "shop:{bot}:r:window"},
		client.Keys(t.Context(), "*").Val())
}
