package redis

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
)

// A quotaBench is a quota of 10 per hour, 33 minutes and 20 seconds after the hour has begun.
type quotaBench struct {
	*testing.T
	*CountLimiter[limit.QuotaPolicy]
	m   *movedServer
	key limit.Key
}

func newQuotaBench(t *testing.T) *quotaBench {
	b := &quotaBench{T: t, m: startMovedServer(t), key: limit.Key{"user", "ann"}}
	b.CountLimiter = NewQuota(b.m.client, limit.QuotaPolicy{Name: "q", Max: 10, Period: limit.Hour})
	b.m.use(b.records, "")
	return b
}

func (b *quotaBench) lease(cost int64, length time.Duration) limit.Receipt {
	b.Helper()
	d, err := b.Take(b.Context(), b.key, limit.Take{Cost: cost, Lease: length, Receipt: true})
	require.NoError(b, err)
	require.True(b, d.Allowed)
	return d.Receipt
}

func (b *quotaBench) settle(r limit.Receipt, used int64) {
	b.Helper()
	require.NoError(b, r.Settle(b.Context(), b.CountLimiter, b.key, used))
}

func (b *quotaBench) remains(want int64, why string) {
	b.Helper()
	d, err := limit.Inspect(b.Context(), b.CountLimiter, b.key)
	require.NoError(b, err)
	require.Equal(b, want, d.Remaining, why)
}

func (b *quotaBench) record() string { return b.records.prefix + ":user:ann" }

func TestQuotaLease_Unhappy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*quotaBench){
		"the server loses its data": func(b *quotaBench) {
			r := b.lease(6, time.Minute)
			require.NoError(b, b.m.client.Del(b.Context(), b.record()).Err())
			b.settle(r, 4)
			b.remains(6, "all that was used is charged")
		},
		"settled for nothing and for everything": func(b *quotaBench) {
			b.settle(b.lease(6, time.Minute), 0)
			b.remains(10, "all of it returns")
			b.settle(b.lease(6, time.Minute), math.MaxInt64)
			b.remains(0, "more than the maximum")
			b.m.sleep(30 * time.Minute)
			b.remains(10, "the excess does not count in the next period")
		},
		"the period of the policy changes": func(b *quotaBench) {
			r := b.lease(6, time.Minute)
			b.lease(1, time.Minute)
			require.NoError(b, b.SetPolicy(limit.QuotaPolicy{Name: "q", Max: 10, Period: limit.Day}))
			b.settle(r, 1)
			b.remains(3, "the receipt is from before")
			b.lease(2, time.Minute)
			b.m.sleep(time.Minute)
			b.remains(3, "only the last lease returns, in a record of an hour")
		},
		"settled for what was taken": func(b *quotaBench) {
			r := b.lease(6, time.Minute)
			b.settle(r, 6)
			b.settle(r, 9)
			b.remains(4, "it is settled")
			b.m.sleep(time.Minute)
			b.remains(4, "nothing returns at the end")
		},
		"settled after a denial": func(b *quotaBench) {
			r := b.lease(10, time.Minute)
			for _, allowed := range []bool{false, true} {
				d, err := limit.Consume(b.Context(), b.CountLimiter, b.key, 1)
				require.NoError(b, err)
				require.Equal(b, allowed, d.Allowed)
				b.settle(r, 5)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { test(newQuotaBench(t)) })
	}
}

// TestQuotaLease_RecordOutlivesItsPeriod checks that a lease is known until its end, although nothing
// counts any more.
func TestQuotaLease_RecordOutlivesItsPeriod(t *testing.T) {
	t.Parallel()
	b := newQuotaBench(t)
	start := b.m.server.Now()
	period := start.Truncate(time.Hour).UnixMicro()
	r := b.lease(6, 2*time.Hour)
	entries := fmt.Sprintf("%d#%d,%%s,%d,%%d,%d,%d,10", start.Add(2*time.Hour).UnixMicro(), r.Lease, start.UnixMicro(), period, period)
	record := func(used int64, amount string, low int64) string {
		return fmt.Sprintf("%d:%d:%d;%d,%d,%016d;", period, period+3_600_000_000, used, start.UnixMicro(), start.Add(2*time.Hour).UnixMicro(), int64(1)<<53) +
			fmt.Sprintf(entries, amount, low)
	}
	require.Equal(t, record(6, "6", 0), b.m.client.Get(t.Context(), b.record()).Val())
	b.settle(r, 0)
	require.Equal(t, record(0, "-", start.UnixMicro()), b.m.client.Get(t.Context(), b.record()).Val())
	require.Equal(t, 2*time.Hour, b.m.client.PTTL(t.Context(), b.record()).Val())
	b.m.sleep(time.Hour)
	b.settle(r, 7)
	b.remains(10, "it is settled")
	_, err := limit.Consume(t.Context(), b.CountLimiter, b.key, 1)
	require.NoError(t, err)
	b.settle(r, 7)
	b.remains(9, "also after the record has been written in the next period")
	b.m.sleep(time.Hour)
	b.settle(r, 7)
	b.remains(3, "all that was used is charged after the end")
}

// TestQuotaLease_RememberedDenialsEndWithIt takes the tokens that return when a lease ends, soon after
// they were denied.
func TestQuotaLease_RememberedDenialsEndWithIt(t *testing.T) {
	t.Parallel()
	for name, learn := range map[string]func(b *quotaBench) (limit.Decision, error){
		"from one call": func(b *quotaBench) (limit.Decision, error) {
			return limit.Consume(b.Context(), b.CountLimiter, b.key, 4)
		},
		"from a lease": func(b *quotaBench) (limit.Decision, error) {
			return b.Take(b.Context(), b.key, limit.Take{Cost: 4, Lease: time.Minute, Receipt: true})
		},
		"from a call of all kinds": func(b *quotaBench) (limit.Decision, error) {
			generous := b.m.harness(b.T).New(limit.PerHour(1_000_000).Named("generous"))
			return limit.ConsumeAll(b.Context(), limit.Request{Limiter: generous, Key: b.key, Cost: 1}, limit.Request{Limiter: b.CountLimiter, Key: b.key, Cost: 4})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newQuotaBench(t)
			b.lease(6, 500*time.Millisecond)
			b.lease(3, time.Hour)
			d, err := learn(b)
			require.NoError(t, err)
			require.False(t, d.Allowed)
			b.m.sleep(500*time.Millisecond - time.Microsecond)
			_, ok := b.RemembersDenial(b.key, limit.Take{Cost: 4})
			require.True(t, ok, "before the end")
			b.m.sleep(time.Microsecond)
			d, err = limit.Consume(t.Context(), b.CountLimiter, b.key, 4)
			require.NoError(t, err)
			require.True(t, d.Allowed, "at the end")
		})
	}
}
