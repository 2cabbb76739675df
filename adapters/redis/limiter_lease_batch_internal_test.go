package redis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/limit"
)

// TestLease_RememberedDenialsEndWithIt learns that a bucket is empty from the reply of every script, and
// takes the tokens that return when a lease ends, half a second later.
func TestLease_RememberedDenialsEndWithIt(t *testing.T) {
	t.Parallel()
	m := startMovedServer(t)
	for name, learn := range map[string]func(b *leaseBench, generous *Limiter) (limit.Decision, error){
		"from the lease": func(*leaseBench, *Limiter) (limit.Decision, error) { return limit.Decision{}, nil },
		"from one call": func(b *leaseBench, _ *Limiter) (limit.Decision, error) {
			return limit.Consume(b.Context(), b.Limiter, b.key, 4)
		},
		"from a call with conditions": func(b *leaseBench, _ *Limiter) (limit.Decision, error) {
			return limit.ConsumeKeeping(b.Context(), b.Limiter, b.key, 3, 1)
		},
		"from another lease": func(b *leaseBench, _ *Limiter) (limit.Decision, error) {
			return b.Take(b.Context(), b.key, limit.Take{Cost: 4, Lease: time.Minute, Receipt: true})
		},
		"from a call of buckets": func(b *leaseBench, generous *Limiter) (limit.Decision, error) {
			return limit.ConsumeAll(b.Context(), limit.Request{Limiter: generous, Key: b.key, Cost: 1}, limit.Request{Limiter: b.Limiter, Key: b.key, Cost: 4})
		},
		"from a call of all kinds": func(b *leaseBench, _ *Limiter) (limit.Decision, error) {
			quota := NewQuota(m.client, limit.QuotaPolicy{Name: "lease", Max: 10, Period: limit.Hour})
			quota.records.clock = m.server.Now
			return limit.ConsumeAll(b.Context(), limit.Request{Limiter: quota, Key: b.key, Cost: 1}, limit.Request{Limiter: b.Limiter, Key: b.key, Cost: 4})
		},
		"from a charge": func(b *leaseBench, _ *Limiter) (limit.Decision, error) {
			return limit.Decision{}, limit.Charge(b.Context(), b.Limiter, b.key, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newLeaseBench(t, m)
			b.lease(1, time.Hour)
			b.lease(6, 500*time.Millisecond)
			b.lease(3, time.Hour)
			if name != "from the lease" {
				m.local.Local.Add(int64(2 * batch.CacheTime)) // it remembers nothing
			}
			d, err := learn(b, m.harness(t).New(limit.PerHour(1_000_000).Named("generous")).(*Limiter))
			require.NoError(t, err)
			require.False(t, d.Allowed)
			m.sleep(500*time.Millisecond - time.Microsecond)
			_, ok := b.RemembersDenial(b.key, limit.Take{Cost: 4})
			require.True(t, ok, "before the end")
			m.sleep(time.Microsecond)
			d, err = limit.Consume(t.Context(), b.Limiter, b.key, 4)
			require.NoError(t, err)
			require.True(t, d.Allowed, "at the end")
		})
	}
}

// TestLease_RepliesToManyCallsNameTheirEnds tests what the calls of many callers learn.
func TestLease_RepliesToManyCallsNameTheirEnds(t *testing.T) {
	t.Parallel()
	b := newLeaseBench(t, startMovedServer(t))
	b.lease(6, time.Second)
	b.lease(1, 2*time.Second)
	p := batch.NewPolicy(limit.PerMinute(6).Burst(10), nil)
	var calls []*bucketCall
	for _, key := range []string{"bob", "ann", "eve", "ann"} {
		calls = append(calls, &bucketCall{Request: bucketRequest{policy: p, key: b.buckets.prefix + ":user:" + key, units: p.CostUnits(1)}})
	}
	b.buckets.exec(t.Context(), calls)
	for i, want := range []time.Duration{0, time.Second, 0, time.Second} {
		require.NoError(t, calls[i].Err)
		require.Equal(t, want, calls[i].Response.State.LeaseEnds, "call %d", i)
	}
	b.lacks(90*time.Second, "two more were taken")
	b.m.sleep(time.Second)
	b.lacks(29*time.Second, "the lease has ended")
}
