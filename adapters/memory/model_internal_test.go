package memory

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/middleware/ratelimit/ratelimittest"
)

// timed makes limiters whose clock is a number.
func timed() ratelimittest.Harness {
	micros := int64(1) << 49 // far enough from 0 to step back
	return ratelimittest.Harness{
		New: func(p ratelimit.Policy) ratelimit.Limiter {
			l := NewLimiter(p)
			l.clock = func() int64 { return micros }
			return l
		},
		Sleep:    func(d time.Duration) { micros += d.Microseconds() },
		StepBack: func(d time.Duration) { micros -= d.Microseconds() },
	}
}

func TestRegressions(t *testing.T) {
	for _, c := range ratelimittest.Regressions() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, timed()) })
	}
}

func TestLimiterEqualsTheModel(t *testing.T) { ratelimittest.EqualsModel(t, timed(), 150) }

func TestAClockThatStepsBack(t *testing.T) { ratelimittest.SurvivesStepsBack(t, timed(), 150) }

// TestACallerThatIsLate has a caller look at the clock, and others come for a second before
// it takes its token.
func TestACallerThatIsLate(t *testing.T) {
	ann := ratelimit.Key{"user", "", "ann"}
	for _, tt := range []struct {
		name      string
		policy    ratelimit.Policy
		before    int64 // tokens that are taken before it comes
		meanwhile func(t *testing.T, l *Limiter) (granted int64)
		granted   int64 // from the beginning to the second's end, its own included
	}{
		{"the bucket was empty and has been emptied", ratelimit.PerSecond(2).Burst(10), 10, func(t *testing.T, l *Limiter) int64 {
			return drain(t, l, ann)
		}, 10 + 2},
		{"the bucket was dropped", ratelimit.PerSecond(2), 2, func(t *testing.T, l *Limiter) int64 {
			for n := range leastSlots { // the table grows
				drain(t, l, ratelimit.Key{"user", "", strconv.Itoa(n)})
			}
			require.Positive(t, l.Stats().Evicted)
			return 0
		}, 2 + 2},
		{"the bucket was filled", ratelimit.PerSecond(2).Burst(10), 10, func(t *testing.T, l *Limiter) int64 {
			require.NoError(t, l.Reset(t.Context(), ann))
			return 0
		}, 10 + 10},
		{"the bucket has served others", ratelimit.PerSecond(2).Burst(10), 4, func(t *testing.T, l *Limiter) int64 {
			d, err := l.Consume(t.Context(), ann, 6)
			require.NoError(t, err)
			require.EqualValues(t, 2, d.Remaining)
			return 6
		}, 10 + 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := NewLimiterMaxKeys(tt.policy, 100)
			micros := int64(0)
			l.clock = func() int64 { return micros }
			_, err := l.Reserve(t.Context(), ratelimit.Key{"bob"}, 1, time.Hour) // there may be debts
			require.NoError(t, err)
			d, err := l.Consume(t.Context(), ann, tt.before)
			require.NoError(t, err)
			require.True(t, d.Allowed)
			granted, isLate := tt.before, true
			l.clock = func() int64 {
				if !isLate {
					return micros
				}
				isLate = false
				micros = 1_000_000
				granted += tt.meanwhile(t, l)
				return 0
			}
			d, err = l.Consume(t.Context(), ann, 1)
			require.NoError(t, err)
			if d.Allowed {
				granted++
			}
			assert.Equal(t, tt.granted, granted+drain(t, l, ann))
			assert.Equal(t, tt.name != "the bucket was empty and has been emptied", d.Allowed, "by then, or before, it was there")
		})
	}
}

func TestARefundMeetsTheFirstReservation(t *testing.T) {
	ann := ratelimit.Key{"user", "", "ann"}
	l := NewLimiter(ratelimit.PerSecond(1).Burst(10))
	l.clock = func() int64 { return 0 }
	drain(t, l, ann)
	first := true
	l.clock = func() int64 {
		if first {
			first = false
			d, err := l.Reserve(t.Context(), ann, 10, time.Minute)
			require.NoError(t, err)
			require.True(t, d.Allowed)
		}
		return 0
	}
	require.NoError(t, l.Refund(t.Context(), ann, 5))
	d, err := l.Consume(t.Context(), ann, 10)
	require.NoError(t, err)
	assert.Equal(t, 15*time.Second, d.RetryAfter)
}

// TestKeysWithoutRoomShareABucketInEveryWay is about more than taking from it.
func TestKeysWithoutRoomShareABucketInEveryWay(t *testing.T) {
	l := NewLimiterMaxKeys(ratelimit.PerHour(10), 1)
	l.clock = func() int64 { return 0 }
	drain(t, l, ratelimit.Key{"the one that is kept"})
	ann, bob := ratelimit.Key{"ann"}, ratelimit.Key{"bob"}
	holds := func(key ratelimit.Key) int64 {
		d, err := l.Consume(t.Context(), key, 0)
		require.NoError(t, err)
		return d.Remaining
	}
	assert.EqualValues(t, 10, drain(t, l, ann))
	assert.Zero(t, holds(ann))
	assert.Zero(t, holds(bob))
	require.NoError(t, l.Refund(t.Context(), ann, 3))
	assert.EqualValues(t, 3, holds(ann))
	require.NoError(t, l.Reset(t.Context(), ann))
	assert.EqualValues(t, 10, holds(bob))
}

// drain takes what key has, and returns how many tokens that was.
func drain(t *testing.T, l *Limiter, key ratelimit.Key) (granted int64) {
	for {
		d, err := l.Consume(t.Context(), key, 1)
		require.NoError(t, err)
		if !d.Allowed {
			return granted
		}
		granted++
	}
}

func TestExtremes(t *testing.T) {
	const years30 = 30 * 365 * 24 * int64(time.Hour/time.Microsecond)
	for _, p := range []ratelimit.Policy{
		{Capacity: 1, Refill: 1, Per: time.Microsecond},
		{Capacity: 1, Refill: 9000, Per: time.Microsecond},
		{Capacity: 1<<51 - 9000, Refill: 9000, Per: time.Microsecond},
		{Capacity: 1, Refill: 1, Per: 10 * 365 * 24 * time.Hour},
		{Capacity: 2_200_000_000, Refill: 8999},
	} {
		require.NoError(t, p.Validate(), "%+v", p)
		l, model := NewLimiter(p), ratelimittest.NewModel(p)
		for _, micros := range []int64{0, 1, years30, years30 + 1} {
			at := time.Duration(min(micros, math.MaxInt64/1000)) * time.Microsecond
			for _, cost := range []int64{0, 1, p.Capacity, math.MaxInt64} {
				want := model.Consume(at, cost)
				l.clock = func() int64 { return micros }
				got, err := l.Consume(t.Context(), ratelimit.Key{"user"}, cost)
				require.NoError(t, err)
				require.Equal(t, want, got, "%+v: cost %d at %d", p, cost, micros)
			}
		}
	}
}

func TestTheWaitOfARefusedReservationIsEnough(t *testing.T) {
	l := NewLimiter(ratelimit.PerSecond(1))
	micros := int64(0)
	l.clock = func() int64 { return micros }
	key, maxWait := ratelimit.Key{"ann"}, time.Second/3 // which is no number of microseconds
	drain(t, l, key)
	d, err := l.Reserve(t.Context(), key, 1, maxWait)
	require.NoError(t, err)
	require.False(t, d.Allowed)
	micros = d.RetryAfter.Microseconds()
	d, err = l.Reserve(t.Context(), key, 1, maxWait)
	require.NoError(t, err)
	assert.True(t, d.Allowed, "%+v", d)
}
