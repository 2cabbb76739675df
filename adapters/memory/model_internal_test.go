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
	late := func(burst int64, meanwhile func(l *Limiter) (granted int64)) (gotIt bool, granted int64) {
		l := NewLimiterMaxKeys(ratelimit.PerSecond(2).Burst(burst), 100)
		micros := int64(0)
		l.clock = func() int64 { return micros }
		granted = drain(t, l, ann)
		isLate := true
		l.clock = func() int64 {
			if !isLate {
				return micros
			}
			isLate = false
			micros = 1_000_000
			granted += meanwhile(l)
			return 0
		}
		d, err := l.Consume(t.Context(), ann, 1)
		require.NoError(t, err)
		if d.Allowed {
			granted++
		}
		return d.Allowed, granted + drain(t, l, ann)
	}
	t.Run("finds the bucket empty", func(t *testing.T) {
		gotIt, granted := late(10, func(l *Limiter) int64 { return drain(t, l, ann) })
		assert.False(t, gotIt)
		assert.EqualValues(t, 10+2, granted)
	})
	t.Run("finds the bucket dropped", func(t *testing.T) {
		gotIt, granted := late(2, func(l *Limiter) int64 {
			for n := range leastSlots { // the table grows
				drain(t, l, ratelimit.Key{"user", "", strconv.Itoa(n)})
			}
			require.EqualValues(t, 1, l.Stats().Evicted)
			return 0
		})
		assert.True(t, gotIt)
		assert.EqualValues(t, 2+2, granted)
	})
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
