package redisbudget_test

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/outbound"
)

// A conventionClient is another client of the Spectacles convention. It uses only the three keys
// and the algorithm of https://github.com/spec-tacles/spec (ratelimits.md), without scripts.
type conventionClient struct {
	t      *testing.T
	client *goredis.Client
	prefix string
}

func (s testBudget) conventionClient() conventionClient {
	return conventionClient{s.t, s.client, s.prefix}
}

// tryAcquire returns how long to wait, or 0.
func (f conventionClient) tryAcquire(ctx context.Context) time.Duration {
	if global := f.client.PTTL(ctx, f.prefix+"global").Val(); global > 0 {
		return global
	}
	limit, err := f.client.Get(ctx, f.prefix+"r:limit").Int()
	if err != nil {
		limit = 1
	}
	if limit <= 0 {
		return 0
	}
	remaining, err := f.client.Get(ctx, f.prefix+"r:remaining").Int()
	if err != nil {
		require.NoError(f.t, f.client.Set(ctx, f.prefix+"r:remaining", limit-1, 0).Err())
		return 0
	}
	if remaining <= 0 {
		return max(f.client.PTTL(ctx, f.prefix+"r:remaining").Val(), time.Millisecond)
	}
	require.NoError(f.t, f.client.Decr(ctx, f.prefix+"r:remaining").Err())
	return 0
}

// respond applies a response.
func (f conventionClient) respond(ctx context.Context, limit int, resetAfter time.Duration) {
	require.NoError(f.t, f.client.Set(ctx, f.prefix+"r:limit", limit, 0).Err())
	require.NoError(f.t, f.client.PExpire(ctx, f.prefix+"r:remaining", resetAfter).Err())
}

func TestBudget_SharedWithConventionClient(t *testing.T) {
	t.Parallel()
	s := newTestBudget(t)
	f := s.conventionClient()
	first := s.tryAcquire()
	assert.Positive(t, f.tryAcquire(t.Context()), "the other client must wait for our first response")
	s.respond(first, outbound.Status{Limit: 5, Remaining: 4, ResetAfter: time.Minute})
	assert.Zero(t, f.tryAcquire(t.Context()))
	assert.Len(t, s.acquireUpTo(5), 3, "the other client's request must count")
	wait := f.tryAcquire(t.Context())
	assert.InDelta(t, time.Minute, wait, float64(10*time.Second), "the other client must wait for the end of the window")

	s.respond(s.tryAcquireRoute("other"), outbound.Status{RetryAfter: 2 * time.Minute, Global: true})
	assert.Greater(t, f.tryAcquire(t.Context()), time.Minute, "the other client must obey our global rejection")
}

func TestBudget_UsesWindowOfConventionClient(t *testing.T) {
	t.Parallel()
	s := newTestBudget(t)
	f := s.conventionClient()
	require.Zero(t, f.tryAcquire(t.Context()))
	assert.Positive(t, s.tryAcquire().Wait, "the other client's first request is in flight")
	f.respond(t.Context(), 3, 50*time.Millisecond)
	start := time.Now()
	s.acquire()
	assert.Less(t, time.Since(start), 30*time.Second)
	assert.Len(t, s.acquireUpTo(5), 2, "we must obey the other client's limit")

	s.set("global", "1", time.Minute)
	assert.InDelta(t, time.Minute, s.tryAcquireRoute("x").Wait, float64(10*time.Second), "we must obey the other client's global rejection")
}

// TestBudget_InFlightCountsInWindowOfConventionClient lets the other client open a window while
// our requests are in flight.
func TestBudget_InFlightCountsInWindowOfConventionClient(t *testing.T) {
	t.Parallel()
	s := newTestBudget(t)
	f := s.conventionClient()
	s.set("r:limit", 5, 0)
	ours := s.acquireUpTo(3)
	s.respond(ours[0], outbound.Status{Limit: 5, Remaining: 4, ResetAfter: time.Millisecond})
	require.Eventually(t, func() bool { return s.remaining() == "" }, time.Minute, time.Millisecond)
	require.Zero(t, f.tryAcquire(t.Context()))
	f.respond(t.Context(), 5, time.Minute)
	assert.Len(t, s.acquireUpTo(5), 2, "of five requests, the other client has used one, and two of ours are in flight")
}

// The other client deletes the window before it ends.
func TestBudget_SurvivesAWindowDeletedByConventionClient(t *testing.T) {
	t.Parallel()
	s := newTestBudget(t)
	start := time.Now()
	s.respond(s.tryAcquire(), outbound.Status{Limit: 1, Remaining: 0, ResetAfter: 200 * time.Millisecond})
	require.NoError(t, s.client.Del(t.Context(), s.prefix+"r:remaining").Err())
	s.acquire()
	assert.GreaterOrEqual(t, time.Since(start), 190*time.Millisecond)
}

// The other client dies and leaves a window without an end.
func TestBudget_SurvivesFailedConventionClient(t *testing.T) {
	t.Parallel()
	s := newTestBudget(t)
	require.Zero(t, s.conventionClient().tryAcquire(t.Context()))
	start := time.Now()
	assert.Positive(t, s.tryAcquire().Wait)
	s.acquire()
	assert.GreaterOrEqual(t, time.Since(start), testLease)
	s.requireExpiry()
}
