package redis_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/outbound"
	"github.com/penstock-go/penstock/outbound/outboundtest"
)

func TestWindowsKeepTheContract(t *testing.T) {
	for name, client := range map[string]goredis.UniversalClient{
		"one node": redistest.Start(t).Client(t),
		"cluster":  redistest.StartCluster(t).Client(t),
	} {
		for _, c := range outboundtest.Cases() {
			t.Run(name+" "+c.Name, func(t *testing.T) {
				t.Parallel()
				c.Run(t, func(o *outbound.WindowsOptions) outbound.Windows {
					return redis.NewWindows(client, "{"+redistest.Prefix(t)+"}", o)
				})
			})
		}
	}
}

func TestNewWindowsRefuses(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
	cluster := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer func() { _, _ = client.Close(), cluster.Close() }()
	assert.Panics(t, func() { redis.NewWindows(nil, "{bot}:", nil) })
	assert.Panics(t, func() { redis.NewWindows(client, "bot:", &outbound.WindowsOptions{Lease: -1}) })
	assert.NotPanics(t, func() { redis.NewWindows(client, "", nil) })
	assert.NotPanics(t, func() { redis.NewWindows(cluster, "a{bot}:", nil) })
	for _, prefix := range []string{"", "bot:", "{}bot:", "{bot", "bot}{"} {
		assert.PanicsWithValue(t, fmt.Sprintf("redis: NewWindows with prefix %q and a *redis.ClusterClient; it must have a hash tag, such as \"{mybot}:\"", prefix),
			func() { redis.NewWindows(cluster, prefix, nil) })
	}
}

// A spectacle is windows of one route, and what another client of the convention sees of
// them.
type spectacle struct {
	*redis.Windows

	t      *testing.T
	client *goredis.Client
	prefix string
}

const spectacleLease = time.Second

func newSpectacle(t *testing.T) spectacle {
	client, prefix := redistest.Start(t).Client(t), redistest.Prefix(t)
	return spectacle{redis.NewWindows(client, prefix, &outbound.WindowsOptions{Lease: spectacleLease}), t, client, prefix}
}

func (s spectacle) claim() outbound.Claim {
	s.t.Helper()
	return s.claimOf("r")
}

func (s spectacle) claimOf(route string) outbound.Claim {
	s.t.Helper()
	c, err := s.Claim(s.t.Context(), route)
	require.NoError(s.t, err)
	return c
}

// granted claims until it waits or has claimed so many.
func (s spectacle) granted(most int) (claims []outbound.Claim) {
	s.t.Helper()
	for range most {
		c := s.claim()
		if c.Wait > 0 {
			break
		}
		claims = append(claims, c)
	}
	return claims
}

// wait claims until it need not wait.
func (s spectacle) wait() outbound.Claim {
	s.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		c := s.claim()
		if c.Wait == 0 {
			return c
		}
		time.Sleep(c.Wait)
	}
	require.FailNow(s.t, "nobody can claim")
	return outbound.Claim{}
}

func (s spectacle) tell(c outbound.Claim, told outbound.Status) {
	s.t.Helper()
	require.NoError(s.t, s.Update(s.t.Context(), "r", c, told))
}

func (s spectacle) remaining() string {
	return s.client.Get(s.t.Context(), s.prefix+"r:remaining").Val()
}

func (s spectacle) ttl(key string) time.Duration {
	return s.client.PTTL(s.t.Context(), s.prefix+key).Val()
}

func (s spectacle) set(key string, value any, ttl time.Duration) {
	s.t.Helper()
	require.NoError(s.t, s.client.Set(s.t.Context(), s.prefix+key, value, ttl).Err())
}

// allExpire fails if a key would stay for ever.
func (s spectacle) allExpire() {
	s.t.Helper()
	keys := s.client.Scan(s.t.Context(), 0, s.prefix+"*", 1000).Iterator()
	for keys.Next(s.t.Context()) {
		ttl := s.client.PTTL(s.t.Context(), keys.Val()).Val()
		require.NotEqual(s.t, time.Duration(-1), ttl, keys.Val())
	}
	require.NoError(s.t, keys.Err())
}

// The tests below are named after the flaws of the algorithm that the convention describes
// (https://github.com/spec-tacles/spec, ratelimits.md).

// Setting a key in the last millisecond of its life lost its expiry.
func TestWindowsS1NoKeyOutlivesItsWindow(t *testing.T) {
	s := newSpectacle(t)
	s.tell(s.claim(), outbound.Status{Limit: 1_000_000, Remaining: 999_999, ResetAfter: time.Millisecond})
	for range 300 {
		c := s.wait()
		s.tell(c, outbound.Status{Limit: 1_000_000, Remaining: 999_999, ResetAfter: 3 * time.Millisecond})
		for end := time.Now().Add(5 * time.Millisecond); time.Now().Before(end); {
			s.claim()
		}
		s.allExpire()
	}
}

// A claimant that died left a window that never ended.
func TestWindowsS2ACrashedClaimantBlocksForALease(t *testing.T) {
	s := newSpectacle(t)
	start := time.Now()
	s.claim()
	s.wait()
	assert.InDelta(t, spectacleLease, time.Since(start), float64(2*time.Second))
	assert.GreaterOrEqual(t, time.Since(start), spectacleLease)
	s.allExpire()
}

// A global key without an expiry was ignored.
func TestWindowsS3GlobalWithoutAnExpiryBlocks(t *testing.T) {
	s := newSpectacle(t)
	s.set("global", "whatever", 0)
	start := time.Now()
	assert.Positive(t, s.claim().Wait)
	s.wait() // whoever was to set the expiry has died
	assert.GreaterOrEqual(t, time.Since(start), spectacleLease)
}

// A limit of 0 admitted everybody, with -1 remaining.
func TestWindowsS4ALimitOfNothingAdmitsNobody(t *testing.T) {
	s := newSpectacle(t)
	s.tell(s.claim(), outbound.ParseHeaders(200, headersOf("X-RateLimit-Limit", "0", "X-RateLimit-Reset-After", "60")))
	assert.Positive(t, s.claim().Wait)
	assert.Equal(t, "0", s.remaining())

	other := newSpectacle(t)
	other.set("r:limit", 0, 0)
	assert.Len(t, other.granted(3), 1, "0 may mean that there is none, which one request finds out")
	none := newSpectacle(t)
	none.set("r:limit", -1, 0)
	assert.Len(t, none.granted(100), 100, "the convention's way to say that there is no limit")
}

// A late response set the expiry of the next window.
func TestWindowsS5ALateResponseDoesNotEndTheNextWindow(t *testing.T) {
	s := newSpectacle(t)
	s.set("r:limit", 5, 0)
	late := s.granted(2)
	s.tell(late[0], outbound.Status{Limit: 5, Remaining: 3, ResetAfter: 20 * time.Millisecond})
	require.Eventually(t, func() bool { return s.remaining() == "" }, 10*time.Second, time.Millisecond)
	s.wait()
	s.tell(late[1], outbound.Status{Limit: 5, Remaining: 3, ResetAfter: 10 * time.Millisecond})
	time.Sleep(20 * time.Millisecond) // as long as the window would last, if it were believed
	assert.Len(t, s.granted(5), 3, "the window's own, and the late one, count")
}

// What the API said remains was ignored.
func TestWindowsS6WhatRemainsIsBelieved(t *testing.T) {
	s := newSpectacle(t)
	s.set("r:limit", 5, 0)
	s.tell(s.claim(), outbound.Status{Limit: 5, Remaining: 1, ResetAfter: time.Minute})
	assert.Equal(t, "1", s.remaining())
	assert.Len(t, s.granted(5), 1)
}

// Reset - Date was up to a second early, and 0 or less deleted the window.
func TestWindowsS7ResetMinusDateIsNeverEarly(t *testing.T) {
	s := newSpectacle(t)
	now := time.Now().Truncate(time.Second)
	date := now.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")
	for _, reset := range []time.Duration{0, -time.Second, -time.Hour} {
		c := s.wait()
		s.tell(c, outbound.ParseHeaders(200, headersOf("Date", date, "X-RateLimit-Limit", "1",
			"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", fmt.Sprint(now.Add(reset).Unix()))))
		assert.Positive(t, s.claim().Wait, "%v", reset)
	}
	s = newSpectacle(t)
	s.tell(s.claim(), outbound.ParseHeaders(200, headersOf("Date", date, "X-RateLimit-Limit", "1",
		"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", fmt.Sprint(now.Add(9*time.Second).Unix()))))
	assert.Greater(t, s.ttl("r:remaining"), 9*time.Second)
}

// Reset-After was taken for milliseconds.
func TestWindowsS8ResetAfterIsInSeconds(t *testing.T) {
	s := newSpectacle(t)
	s.tell(s.claim(), outbound.ParseHeaders(200, headersOf("X-RateLimit-Limit", "1", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", "61.25")))
	assert.InDelta(t, 61250*time.Millisecond, s.ttl("r:remaining"), float64(10*time.Second))
}

// The keys of a claim were in different slots, and one global was that of all bots.
func TestWindowsS9TheKeysOfABotAreTogether(t *testing.T) {
	client, prefix := redistest.Start(t).Client(t), redistest.Prefix(t)
	bots := map[string]*redis.Windows{}
	for _, bot := range []string{"one", "two"} {
		bots[bot] = redis.NewWindows(client, prefix+"{"+bot+"}:", nil)
	}
	c, err := bots["one"].Claim(t.Context(), "r{x}")
	require.NoError(t, err)
	require.NoError(t, bots["one"].Update(t.Context(), "r{x}", c, outbound.Status{RetryAfter: time.Minute, Global: true}))
	c, err = bots["one"].Claim(t.Context(), "other")
	require.NoError(t, err)
	assert.Positive(t, c.Wait)
	c, err = bots["two"].Claim(t.Context(), "r{x}")
	require.NoError(t, err)
	assert.Zero(t, c.Wait)
	// Cluster runs the contract in TestWindowsKeepTheContract.
}

// A limit stayed for ever.
func TestWindowsS10EverythingExpires(t *testing.T) {
	s := newSpectacle(t)
	s.tell(s.claim(), outbound.Status{Limit: 5, Remaining: 4, ResetAfter: time.Minute})
	s.tell(s.claim(), outbound.Status{RetryAfter: time.Minute, Global: true})
	assert.InDelta(t, 7*24*time.Hour, s.ttl("r:limit"), float64(time.Minute))
	s.allExpire()
	none := newSpectacle(t)
	none.tell(none.claim(), outbound.Status{Limit: outbound.Unlimited})
	assert.InDelta(t, time.Hour, none.ttl("r:limit"), float64(time.Minute))
	none.allExpire()
	limited := redis.NewWindows(s.client, s.prefix, &outbound.WindowsOptions{GlobalLimit: 5})
	_, err := limited.Claim(t.Context(), "x")
	require.NoError(t, err)
	s.allExpire()
}

// Every waiter woke up at the same time, and claimed.
func TestWindowsS11WaitersDoNotComeAsAHerd(t *testing.T) {
	server := redistest.Start(t)
	windows := &counted{Windows: redis.NewWindows(server.Client(t), "{bot}:", nil)}
	api := newAPI(t, apiOptions{limit: 5, per: 200 * time.Millisecond})
	const requests = 60
	api.send(t, windows, requests, requests)
	api.check(t, requests)
	// Each request needs its claim. Beside these, the first in line asks while a response
	// may come, and once for each window.
	assert.Less(t, windows.claims.Load(), int64(3*requests))
}

// A claim took five commands, and as many round trips if it was no script.
func TestWindowsS12AClaimIsOneRoundTrip(t *testing.T) {
	server := redistest.Start(t)
	s := redis.NewWindows(server.Client(t), "{bot}:", nil)
	claim := func() outbound.Claim {
		c, err := s.Claim(t.Context(), "r")
		require.NoError(t, err)
		return c
	}
	require.NoError(t, s.Update(t.Context(), "r", claim(), outbound.Status{Limit: 1000, Remaining: 999, ResetAfter: time.Minute}))
	server.ResetStats(t)
	for range 100 {
		require.Zero(t, claim().Wait)
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

// TestWindowsSurviveARestart has a Redis that forgets scripts and windows.
func TestWindowsSurviveARestart(t *testing.T) {
	server := redistest.Start(t)
	w := redis.NewWindows(server.Client(t), "{bot}:", nil)
	_, err := w.Claim(t.Context(), "r")
	require.NoError(t, err)
	server.Restart()
	require.Eventually(t, func() bool {
		c, err := w.Claim(t.Context(), "r")
		return err == nil && c.Wait == 0
	}, 10*time.Second, time.Millisecond)
	server.Stop()
	_, err = w.Claim(t.Context(), "r")
	assert.Error(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.Claim(ctx, "r")
	assert.ErrorIs(t, err, context.Canceled)
}

// TestWindowsOnMiniredis is for those who test with it.
func TestWindowsOnMiniredis(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{Addr: miniredis.RunT(t).Addr()})
	defer func() { _ = client.Close() }()
	w := redis.NewWindows(client, "bot:", nil)
	c, err := w.Claim(t.Context(), "r")
	require.NoError(t, err)
	require.Zero(t, c.Wait)
	require.NoError(t, w.Update(t.Context(), "r", c, outbound.Status{Limit: 2, Remaining: 1, ResetAfter: time.Minute}))
	_, err = w.Claim(t.Context(), "r")
	require.NoError(t, err)
	c, err = w.Claim(t.Context(), "r")
	require.NoError(t, err)
	assert.Positive(t, c.Wait)
}
