package memory

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/middleware/ratelimit/ratelimittest"
)

// timed makes limiters whose clock is a number.
func timed() ratelimittest.Harness {
	micros := int64(1) << 49 // far enough from 0 to step back
	return ratelimittest.Harness{
		New:      func(p ratelimit.Policy) ratelimit.Limiter { return timedLimiter{NewLimiter(p), &micros} },
		Sleep:    func(d time.Duration) { micros += d.Microseconds() },
		StepBack: func(d time.Duration) { micros -= d.Microseconds() },
	}
}

type timedLimiter struct {
	*Limiter
	micros *int64
}

func (l timedLimiter) Consume(_ context.Context, key ratelimit.Key, cost int64) (ratelimit.Decision, error) {
	return l.consume(key.Hash(l.seed), *l.micros, cost)
}

func (l timedLimiter) Refund(_ context.Context, key ratelimit.Key, tokens int64) error {
	return l.refund(key.Hash(l.seed), *l.micros, tokens)
}

func (l timedLimiter) Block(_ context.Context, key ratelimit.Key, d time.Duration) error {
	return l.block(key.Hash(l.seed), *l.micros, d)
}

func (l timedLimiter) Reserve(_ context.Context, key ratelimit.Key, cost int64, maxWait time.Duration) (ratelimit.Decision, error) {
	return l.reserve(key.Hash(l.seed), *l.micros, cost, maxWait)
}

func TestRegressions(t *testing.T) {
	for _, c := range ratelimittest.Regressions() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, timed()) })
	}
}

func TestLimiterEqualsTheModel(t *testing.T) { ratelimittest.EqualsModel(t, timed(), 150) }

func TestAClockThatStepsBack(t *testing.T) { ratelimittest.SurvivesStepsBack(t, timed(), 150) }

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
				got, err := l.consume(7, micros, cost)
				require.NoError(t, err)
				require.Equal(t, want, got, "%+v: cost %d at %d", p, cost, micros)
			}
		}
	}
}
