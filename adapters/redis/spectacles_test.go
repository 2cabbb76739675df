package redis_test

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/outbound"
)

// A foreigner is another client of the convention: it knows three keys and does as
// https://github.com/spec-tacles/spec (ratelimits.md) says, without scripts.
type foreigner struct {
	t      *testing.T
	client *goredis.Client
	prefix string
}

func (s spectacle) foreigner() foreigner { return foreigner{s.t, s.client, s.prefix} }

// claim returns how long to wait, or 0.
func (f foreigner) claim(ctx context.Context) time.Duration {
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

// tell is what it does once it has its response.
func (f foreigner) tell(ctx context.Context, limit int, resetAfter time.Duration) {
	require.NoError(f.t, f.client.Set(ctx, f.prefix+"r:limit", limit, 0).Err())
	require.NoError(f.t, f.client.PExpire(ctx, f.prefix+"r:remaining", resetAfter).Err())
}

func TestWindowsAreSharedWithForeigners(t *testing.T) {
	s := newSpectacle(t)
	f := s.foreigner()
	first := s.claim()
	assert.Positive(t, f.claim(t.Context()), "it waits for our first response")
	s.tell(first, outbound.Status{Limit: 5, Remaining: 4, ResetAfter: time.Minute})
	assert.Zero(t, f.claim(t.Context()))
	assert.Len(t, s.granted(5), 3, "what it took is gone")
	wait := f.claim(t.Context())
	assert.InDelta(t, time.Minute, wait, float64(10*time.Second), "it knows how long the window lasts")

	s.tell(s.claimOf("other"), outbound.Status{RetryAfter: 2 * time.Minute, Global: true})
	assert.Greater(t, f.claim(t.Context()), time.Minute, "our refusal is its refusal")
}

func TestWindowsThatForeignersOpen(t *testing.T) {
	s := newSpectacle(t)
	f := s.foreigner()
	require.Zero(t, f.claim(t.Context()))
	assert.Positive(t, s.claim().Wait, "its first request is under way")
	f.tell(t.Context(), 3, 50*time.Millisecond)
	start := time.Now()
	s.wait()
	assert.Less(t, time.Since(start), 5*time.Second)
	assert.Len(t, s.granted(5), 2, "its limit is ours")

	s.set("global", "1", time.Minute)
	assert.InDelta(t, time.Minute, s.claimOf("x").Wait, float64(10*time.Second), "its refusal is ours")
}

// TestWhatIsUnderWayCountsInTheWindowOfAForeigner has it open a window while requests of
// ours may arrive in it.
func TestWhatIsUnderWayCountsInTheWindowOfAForeigner(t *testing.T) {
	s := newSpectacle(t)
	f := s.foreigner()
	s.set("r:limit", 5, 0)
	ours := s.granted(3)
	s.tell(ours[0], outbound.Status{Limit: 5, Remaining: 4, ResetAfter: time.Millisecond})
	require.Eventually(t, func() bool { return s.remaining() == "" }, 10*time.Second, time.Millisecond)
	require.Zero(t, f.claim(t.Context()))
	f.tell(t.Context(), 5, time.Minute)
	assert.Len(t, s.granted(5), 2, "of five, it has one, and two of ours are under way")
}

func TestAForeignerThatEndsAWindowTooSoon(t *testing.T) {
	s := newSpectacle(t)
	s.tell(s.claim(), outbound.Status{Limit: 1, Remaining: 0, ResetAfter: 200 * time.Millisecond})
	start := time.Now()
	require.NoError(t, s.client.Del(t.Context(), s.prefix+"r:remaining").Err())
	s.wait()
	assert.GreaterOrEqual(t, time.Since(start), 190*time.Millisecond)
}

// It leaves a window without an end.
func TestAForeignerThatDies(t *testing.T) {
	s := newSpectacle(t)
	require.Zero(t, s.foreigner().claim(t.Context()))
	start := time.Now()
	assert.Positive(t, s.claim().Wait)
	s.wait()
	assert.GreaterOrEqual(t, time.Since(start), spectacleLease)
	s.allExpire()
}
