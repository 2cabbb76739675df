package redis

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A leaseBench is a bucket of 10, to which a token returns every 10 seconds.
type leaseBench struct {
	*testing.T
	m *movedServer
	*Limiter
	harness func(limit.Policy) *Limiter // returns a limiter of another process
	key     limit.Key
}

func newLeaseBench(t *testing.T, m *movedServer) *leaseBench {
	h := m.harness(t)
	other := func(p limit.Policy) *Limiter { return h.New(p.Named("lease")).(*Limiter) }
	return &leaseBench{t, m, other(limit.PerMinute(6).Burst(10)), other, limit.Key{"user", "ann"}}
}

func (b *leaseBench) lease(cost int64, length time.Duration) limit.Receipt {
	b.Helper()
	d, err := b.Take(b.Context(), b.key, limit.Take{Cost: cost, Lease: length, Receipt: true})
	require.NoError(b, err)
	require.True(b, d.Allowed)
	return d.Receipt
}

func (b *leaseBench) settle(r limit.Receipt, used int64) {
	b.Helper()
	require.NoError(b, r.Settle(b.Context(), b.Limiter, b.key, used))
}

// lacks checks how long the bucket takes to fill.
func (b *leaseBench) lacks(want time.Duration, why string) {
	b.Helper()
	d, err := limit.Inspect(b.Context(), b.Limiter, b.key)
	require.NoError(b, err)
	require.Equal(b, want, d.ResetAfter, why)
}

func (b *leaseBench) bucket() string { return b.buckets.prefix + ":user:ann" }

func TestLease_Unhappy(t *testing.T) {
	t.Parallel()
	m := startMovedServer(t)
	for name, test := range map[string]func(*leaseBench){
		"the server loses its data": func(b *leaseBench) {
			r := b.lease(6, time.Minute)
			require.NoError(b, b.m.client.Del(b.Context(), b.bucket()).Err())
			b.lacks(0, "like all buckets")
			b.settle(r, 4)
			b.lacks(40*time.Second, "all that was used is charged")
		},
		"settled with an identifier that ends like another": func(b *leaseBench) {
			r := b.lease(6, time.Minute)
			r.Lease %= 1_000_000
			b.settle(r, 1)
			b.lacks(70*time.Second, "all that was used is charged")
		},
		"settled for nothing and for everything": func(b *leaseBench) {
			b.settle(b.lease(6, time.Hour), 0)
			b.lacks(0, "all of it returns")
			b.settle(b.lease(6, time.Hour), math.MaxInt64)
			b.lacks(adapter.MaxDeficit*time.Microsecond, "the largest deficit")
		},
		"another process writes the bucket": func(b *leaseBench) {
			first, other := b.lease(6, time.Minute), b.harness(limit.PerMinute(3).Burst(10))
			_, err := limit.Inspect(b.Context(), other, b.key)
			require.NoError(b, err)
			b.m.sleep(time.Minute - time.Second)
			b.lacks(time.Second, "a look writes nothing")
			b.settle(first, 6)
			b.m.sleep(time.Second)
			b.lease(6, 20*time.Second)
			_, err = limit.Consume(b.Context(), other, b.key, 1)
			require.NoError(b, err)
			b.lacks(70*time.Second, "both are missing")
			b.m.sleep(20 * time.Second)
			d, err := limit.Inspect(b.Context(), other, b.key)
			require.NoError(b, err)
			require.Equal(b, 100*time.Second, d.ResetAfter, "the lease of a rewritten bucket returns nothing")
		},
		"the policy changes and changes back": func(b *leaseBench) {
			r := b.lease(6, time.Minute)
			require.NoError(b, b.SetPolicy(limit.PerMinute(12).Burst(10).Named("lease")))
			require.NoError(b, b.SetPolicy(limit.PerMinute(6).Burst(10).Named("lease")))
			b.settle(r, 1)
			b.lacks(time.Minute, "the receipt is from before")
			b.m.sleep(30 * time.Second)
			b.settle(r, 100)
			b.lacks(30*time.Second, "it is settled")
		},
	} {
		t.Run(name, func(t *testing.T) { test(newLeaseBench(t, m)) })
	}
}

// TestLease_KeyOutlivesItsBucket checks that a settled lease is known until its end, although the
// bucket is full much earlier.
func TestLease_KeyOutlivesItsBucket(t *testing.T) {
	t.Parallel()
	b := newLeaseBench(t, startMovedServer(t))
	r, start := b.lease(1, time.Hour), b.m.server.Now()
	b.m.sleep(30 * time.Minute)
	b.settle(r, 3)
	b.lacks(20*time.Second, "the excess is charged")
	b.m.sleep(30*time.Minute - time.Microsecond)
	b.settle(r, 3)
	b.lacks(0, "it is settled")
	left, err := b.m.client.PTTL(t.Context(), b.bucket()).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, left, time.Millisecond)
	b.m.sleep(2 * time.Millisecond) // Redis counts them, and keeps the key in the last one
	require.Zero(t, b.m.client.Exists(t.Context(), b.bucket()).Val(), "%v after the start", b.m.server.Now().Sub(start))
	b.settle(r, 3)
	b.lacks(30*time.Second, "all that was used is charged after the end")
}

func TestLease_Values(t *testing.T) {
	t.Parallel()
	b := newLeaseBench(t, startMovedServer(t))
	at := func(seconds int64) int64 { return b.m.server.Now().UnixMicro() + seconds*1_000_000 }
	start := at(0)
	lease := func(seconds int64, units string, r limit.Receipt, low int64) string {
		return fmt.Sprintf(";%d#%d,%s,%d,%d", start+seconds*1_000_000, r.Lease, units, start, low)
	}
	first, last, second := b.lease(2, 30*time.Second), b.lease(2, 50*time.Second), b.lease(2, 40*time.Second)
	require.Equal(t, fmt.Sprintf("%d:0;%d,%d,%d", at(60), start, at(50), int64(1<<53))+
		lease(30, "20000000", first, 20_000_000)+lease(40, "20000000", second, 60_000_000)+lease(50, "20000000", last, 40_000_000)+"/1.10000000.10",
		b.m.client.Get(t.Context(), b.bucket()).Val(), "in the order of their ends")
	b.settle(second, 2)
	b.m.sleep(30 * time.Second)
	_, err := limit.Consume(t.Context(), b.Limiter, b.key, 1)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%d:0;%d,%d,%016d", at(20), start, at(20), 10_000_000)+
		lease(40, "-", second, start)+lease(50, "20000000", last, 10_000_000)+"/1.10000000.10",
		b.m.client.Get(t.Context(), b.bucket()).Val(), "the first has ended, and a token was taken")
	require.Equal(t, 20*time.Second, b.m.client.PTTL(t.Context(), b.bucket()).Val())
}

// TestLease_ClockGoesBackInTheirOrder moves the clock to before two leases, so that the later one ends
// first.
func TestLease_ClockGoesBackInTheirOrder(t *testing.T) {
	t.Parallel()
	b := newLeaseBench(t, startMovedServer(t))
	b.lease(4, time.Minute)
	b.m.sleep(50 * time.Second)
	b.lease(5, 20*time.Second)
	b.m.rewind(time.Minute)
	b.lacks(100*time.Second, "no more than its capacity")
	b.m.sleep(20 * time.Second)
	b.lacks(100*time.Second-20*time.Second-50*time.Second, "at the end of the later lease")
	b.m.sleep(20 * time.Second)
	b.lacks(10*time.Second, "the other has returned by itself")
}

// TestLease_ClockGoesBackwards checks that a lease lasts no longer than from when the clock went back,
// even if all calls since then were denied.
func TestLease_ClockGoesBackwards(t *testing.T) {
	t.Parallel()
	m := startMovedServer(t)
	for name, tt := range map[string]struct{ back, lacks time.Duration }{
		"by an hour":             {time.Hour, 100 * time.Second}, // no bucket lacks more than its capacity
		"to before all leases":   {5*time.Second + time.Microsecond, 80*time.Second + time.Microsecond},
		"to the start of leases": {5 * time.Second, 80 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			b := newLeaseBench(t, m)
			longer := b.lease(4, 30*time.Second)
			b.lease(4, 20*time.Second)
			m.sleep(5 * time.Second)
			m.rewind(tt.back)
			lacks := tt.lacks
			b.lacks(lacks, "at first")
			m.sleep(20*time.Second - time.Microsecond)
			b.lacks(lacks-20*time.Second+time.Microsecond, "before the end")
			m.sleep(time.Microsecond)
			b.lacks(lacks-20*time.Second-40*time.Second, "at the end of the shorter lease")
			m.sleep(10 * time.Second)
			b.lacks(0, "at the end of the longer one")
			b.settle(longer, 2)
			b.lacks(20*time.Second, "all that was used is charged")
		})
	}
}
