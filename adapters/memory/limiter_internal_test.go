package memory

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
)

// fakeClockHarness returns a harness of limiters that share a fake clock.
func fakeClockHarness() limittest.Harness {
	micros := int64(0)
	return limittest.Harness{
		New: func(p limit.Policy) limit.Limiter {
			l := NewLimiter(p)
			epoch := micros - 1<<49 // far enough to go backwards
			l.clock = func() int64 { return micros - epoch }
			return l
		},
		Sleep:  func(d time.Duration) { micros += d.Microseconds() },
		Rewind: func(d time.Duration) { micros -= d.Microseconds() },
	}
}

func TestLimiter_Regressions(t *testing.T) {
	for _, c := range limittest.Regressions() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, fakeClockHarness()) })
	}
}

func TestLimiter_EqualsModel(t *testing.T) {
	limittest.EqualsModel(t, fakeClockHarness(), testscale.Tiers(30, 30, 150))
}

func TestLimiter_PolicyChanges(t *testing.T) {
	limittest.PolicyChanges(t, fakeClockHarness(), testscale.Tiers(20, 30, 300))
}

func TestLimiter_ClockGoesBackwards(t *testing.T) {
	limittest.ClockGoesBackwards(t, fakeClockHarness(), 150)
}

// TestLimiter_StaleClockReading lets other calls change a bucket for a second between a call's
// reading of the clock and its change of the bucket.
func TestLimiter_StaleClockReading(t *testing.T) {
	ann := limit.Key{"user", "", "ann"}
	for _, tt := range []struct {
		name      string
		policy    limit.Policy
		before    int64 // tokens taken before the call
		meanwhile func(t *testing.T, l *Limiter) (granted int64)
		granted   int64 // in that second, including the call
	}{
		{"the bucket was empty and has been emptied", limit.PerSecond(2).Burst(10), 10, func(t *testing.T, l *Limiter) int64 {
			return takeAll(t, l, ann)
		}, 10 + 2},
		{"the bucket was evicted", limit.PerSecond(2), 2, func(t *testing.T, l *Limiter) int64 {
			for n := range minSlots { // so that the table grows
				takeAll(t, l, limit.Key{"user", "", strconv.Itoa(n)})
			}
			require.Positive(t, l.Stats().Evicted)
			return 0
		}, 2 + 2},
		{"the bucket was filled", limit.PerSecond(2).Burst(10), 10, func(t *testing.T, l *Limiter) int64 {
			require.NoError(t, l.Reset(t.Context(), ann))
			return 0
		}, 10 + 10},
		{"other calls have used the bucket", limit.PerSecond(2).Burst(10), 4, func(t *testing.T, l *Limiter) int64 {
			d, err := limit.Consume(t.Context(), l, ann, 6)
			require.NoError(t, err)
			require.EqualValues(t, 2, d.Remaining)
			return 6
		}, 10 + 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := NewLimiterMaxKeys(tt.policy, 100)
			micros := int64(0)
			l.clock = func() int64 { return micros }
			_, err := limit.Reserve(t.Context(), l, limit.Key{"bob"}, 1, time.Hour) // buckets may have a deficit after this
			require.NoError(t, err)
			d, err := limit.Consume(t.Context(), l, ann, tt.before)
			require.NoError(t, err)
			require.True(t, d.Allowed)
			granted, stale := tt.before, true
			l.clock = func() int64 {
				if !stale {
					return micros
				}
				stale = false
				micros = 1_000_000
				granted += tt.meanwhile(t, l)
				return 0
			}
			d, err = limit.Consume(t.Context(), l, ann, 1)
			require.NoError(t, err)
			if d.Allowed {
				granted++
			}
			assert.Equal(t, tt.granted, granted+takeAll(t, l, ann))
			assert.Equal(t, tt.name != "the bucket was empty and has been emptied", d.Allowed, "the bucket held a token at the time of the reading or later")
		})
	}
}

func TestLimiter_RefundDuringFirstReservation(t *testing.T) {
	ann := limit.Key{"user", "", "ann"}
	l := NewLimiter(limit.PerSecond(1).Burst(10))
	l.clock = func() int64 { return 0 }
	takeAll(t, l, ann)
	first := true
	l.clock = func() int64 {
		if first {
			first = false
			d, err := limit.Reserve(t.Context(), l, ann, 10, time.Minute)
			require.NoError(t, err)
			require.True(t, d.Allowed)
		}
		return 0
	}
	require.NoError(t, limit.Refund(t.Context(), l, ann, 5))
	d, err := limit.Consume(t.Context(), l, ann, 10)
	require.NoError(t, err)
	assert.Equal(t, 15*time.Second, d.RetryAfter)
}

// TestLimiter_UntrackedKeysShareBucket covers refund and reset in addition to consume.
func TestLimiter_UntrackedKeysShareBucket(t *testing.T) {
	l := NewLimiterMaxKeys(limit.PerHour(10), 1)
	l.clock = func() int64 { return 0 }
	takeAll(t, l, limit.Key{"tracked"})
	ann, bob := limit.Key{"ann"}, limit.Key{"bob"}
	holds := func(key limit.Key) int64 {
		d, err := limit.Consume(t.Context(), l, key, 0)
		require.NoError(t, err)
		return d.Remaining
	}
	assert.EqualValues(t, 10, takeAll(t, l, ann))
	assert.Zero(t, holds(ann))
	assert.Zero(t, holds(bob))
	require.NoError(t, limit.Refund(t.Context(), l, ann, 3))
	assert.EqualValues(t, 3, holds(ann))
	require.NoError(t, l.Reset(t.Context(), ann))
	assert.EqualValues(t, 10, holds(bob))
}

// takeAll empties the bucket of key and returns how many tokens it held.
func takeAll(t *testing.T, l *Limiter, key limit.Key) (granted int64) {
	for {
		d, err := limit.Consume(t.Context(), l, key, 1)
		require.NoError(t, err)
		if !d.Allowed {
			return granted
		}
		granted++
	}
}

func TestLimiter_ExtremePolicies(t *testing.T) {
	const years30 = 30 * 365 * 24 * int64(time.Hour/time.Microsecond)
	for _, p := range []limit.Policy{
		{Capacity: 1, Refill: 1, Per: time.Microsecond},
		{Capacity: 1, Refill: 9000, Per: time.Microsecond},
		{Capacity: 1<<51 - 9000, Refill: 9000, Per: time.Microsecond},
		{Capacity: 1, Refill: 1, Per: 10 * 365 * 24 * time.Hour},
		{Capacity: 2_200_000_000, Refill: 8999},
	} {
		require.NoError(t, p.Validate(), "%+v", p)
		l, model := NewLimiter(p), limittest.NewModel(p)
		for _, micros := range []int64{0, 1, years30, years30 + 1} {
			at := time.Duration(min(micros, math.MaxInt64/1000)) * time.Microsecond
			for _, cost := range []int64{0, 1, p.Capacity, math.MaxInt64} {
				want := model.Consume(at, cost)
				l.clock = func() int64 { return micros }
				got, err := limit.Consume(t.Context(), l, limit.Key{"user"}, cost)
				require.NoError(t, err)
				require.Equal(t, want, got, "%+v: cost %d at %d", p, cost, micros)
			}
		}
	}
}

func TestLimiter_DeniedReservationRetryAfterIsEnough(t *testing.T) {
	l := NewLimiter(limit.PerSecond(1))
	micros := int64(0)
	l.clock = func() int64 { return micros }
	key, maxWait := limit.Key{"ann"}, time.Second/3 // not a whole number of microseconds
	takeAll(t, l, key)
	d, err := limit.Reserve(t.Context(), l, key, 1, maxWait)
	require.NoError(t, err)
	require.False(t, d.Allowed)
	micros = d.RetryAfter.Microseconds()
	d, err = limit.Reserve(t.Context(), l, key, 1, maxWait)
	require.NoError(t, err)
	assert.True(t, d.Allowed, "%+v", d)
}
