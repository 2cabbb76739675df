package durableobject

import (
	"crypto/rand"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/durableobject/internal/workerdtest"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A quotaBench is a quota of 10 per hour, 33 minutes and 20 seconds after the hour has begun.
type quotaBench struct {
	*testing.T
	*CountLimiter[limit.QuotaPolicy]
	clock clock
	key   limit.Key
}

func newQuotaBench(t *testing.T, s *workerdtest.Server) *quotaBench {
	c := newClock()
	b := &quotaBench{T: t, clock: c, key: limit.Key{"user", rand.Text()}}
	b.CountLimiter = b.process(newTestClient(s, c), 10)
	return b
}

// process returns the quota of another process, with another maximum.
func (b *quotaBench) process(client *Client, maximum int64) *CountLimiter[limit.QuotaPolicy] {
	q := NewQuota(client, limit.QuotaPolicy{Name: "q", Max: maximum, Period: limit.Hour})
	q.records.clock = b.clock.Now
	return q
}

func (b *quotaBench) lease(cost int64, length time.Duration) limit.Receipt {
	b.Helper()
	d, err := b.Take(b.Context(), b.key, limit.Take{Cost: cost, Lease: length, Receipt: true})
	require.NoError(b, err)
	require.True(b, d.Allowed)
	return d.Receipt
}

func (b *quotaBench) settle(q *CountLimiter[limit.QuotaPolicy], r limit.Receipt, used int64) {
	b.Helper()
	require.NoError(b, r.Settle(b.Context(), q, b.key, used))
}

func (b *quotaBench) remains(want int64, why string) {
	b.Helper()
	d, err := limit.Inspect(b.Context(), b.CountLimiter, b.key)
	require.NoError(b, err)
	require.Equal(b, want, d.Remaining, why)
}

func TestQuotaLease_Unhappy(t *testing.T) {
	s := startTestClock(t, 1)
	for name, test := range map[string]func(*quotaBench){
		"the object restarts": func(b *quotaBench) {
			r := b.lease(6, time.Minute)
			s.Restart()
			start(b.T, b.CountLimiter, b.key)
			b.settle(b.CountLimiter, r, 4)
			b.remains(6, "the difference returns")
		},
		"settled for nothing and for everything": func(b *quotaBench) {
			r := b.lease(6, time.Minute)
			b.settle(b.CountLimiter, r, 0)
			b.settle(b.CountLimiter, r, 9)
			b.remains(10, "all of it returns, once")
			b.settle(b.CountLimiter, b.lease(6, time.Minute), math.MaxInt64)
			b.remains(0, "more than the maximum")
			b.clock.Sleep(30 * time.Minute)
			b.remains(10, "the excess does not count in the next period")
		},
		"the maximum of another process differs": func(b *quotaBench) {
			r := b.lease(6, time.Minute)
			b.lease(2, time.Minute)
			other := b.process(b.records.client, 20)
			b.settle(other, r, 5)
			b.remains(3, "the count is the same")
			b.clock.Sleep(time.Minute)
			d, err := limit.Inspect(b.Context(), other, b.key)
			require.NoError(b, err)
			require.EqualValues(b, 13, d.Remaining, "the lease is one of another policy")
			b.remains(5, "a look writes nothing")
		},
		"the clock goes back in a period": func(b *quotaBench) {
			b.lease(2, 2*time.Minute)
			b.clock.Sleep(time.Minute)
			r := b.lease(6, 30*time.Second)
			b.clock.Rewind(30 * time.Minute)
			denied, err := limit.Consume(b.Context(), b.CountLimiter, b.key, 3) // moves the leases
			require.NoError(b, err)
			require.False(b, denied.Allowed)
			b.clock.Sleep(30*time.Second - time.Microsecond)
			b.remains(2, "before the end")
			b.clock.Sleep(time.Microsecond)
			b.remains(8, "at the end of the shorter lease")
			b.settle(b.CountLimiter, r, 3)
			b.remains(5, "all that was used is charged")
			b.clock.Sleep(90 * time.Second)
			b.remains(7, "at the end of the longer one")
		},
		"a key has too many": func(b *quotaBench) {
			many := b.process(b.records.client, 2*adapter.MaxLeases)
			b.CountLimiter = many
			for range adapter.MaxLeases {
				b.lease(1, time.Minute)
			}
			b.clock.Sleep(10 * time.Second)
			d, err := many.Take(b.Context(), b.key, limit.Take{Cost: 1, Lease: time.Minute, Receipt: true})
			require.NoError(b, err)
			assert.False(b, d.Allowed)
			assert.Equal(b, 50*time.Second, d.RetryAfter, "until the first one ends")
			d, err = limit.Consume(b.Context(), many, b.key, 1)
			require.NoError(b, err)
			assert.True(b, d.Allowed, "a call without a lease")
			b.clock.Sleep(50 * time.Second)
			b.remains(2*adapter.MaxLeases-1, "all leases have ended")
		},
	} {
		t.Run(name, func(t *testing.T) { test(newQuotaBench(t, s)) })
	}
}
