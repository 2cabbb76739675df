package memory

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/middleware/ratelimit/ratelimittest"
)

// TestLimiterEqualsTheModel compares decisions with those of rational numbers,
// over random policies, costs and times.
func TestLimiterEqualsTheModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 150 {
		p := randomPolicy(rng)
		l, model := NewLimiter(p), ratelimittest.NewModel(p)
		micros := rng.Int64N(1 << uint(1+rng.IntN(48)))
		model.Consume(time.Duration(micros)*time.Microsecond, 0)
		for step := range 200 {
			cost := rng.Int64N(2*p.Capacity + 1)
			if rng.IntN(2) == 0 {
				cost = rng.Int64N(min(p.Capacity, 3) + 1)
			}
			want := model.Consume(time.Duration(micros)*time.Microsecond, cost)
			got, err := l.consume(7, micros, cost)
			require.NoError(t, err)
			require.Equal(t, want, got, "%+v: step %d, cost %d, at %d µs", p, step, cost, micros)
			micros += pause(rng, got)
		}
	}
}

func randomPolicy(rng *rand.Rand) ratelimit.Policy {
	for {
		p := ratelimit.Policy{
			Capacity: 1 + rng.Int64N(1<<uint(1+rng.IntN(30))),
			Refill:   1 + rng.Int64N(1<<uint(1+rng.IntN(14))),
			Per:      time.Duration(1+rng.Int64N(1<<uint(1+rng.IntN(36)))) * time.Microsecond,
		}
		if rng.IntN(3) == 0 {
			p.Per = []time.Duration{0, time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour}[rng.IntN(6)]
		}
		// Refills of months are what a time.Duration can hold many of.
		if p.Validate() == nil && ratelimittest.NewModel(p).Consume(0, p.Capacity).ResetAfter < 100*24*time.Hour {
			return p
		}
	}
}

// pause is often just as long as the limiter said, or a little less.
func pause(rng *rand.Rand, d ratelimit.Decision) int64 {
	switch rng.IntN(5) {
	case 0:
		return 0
	case 1:
		if d.RetryAfter != ratelimit.Never {
			return max(0, d.RetryAfter.Microseconds()-rng.Int64N(2))
		}
		return 1
	case 2:
		return max(0, d.ResetAfter.Microseconds()-rng.Int64N(2))
	default:
		return rng.Int64N(d.ResetAfter.Microseconds() + 2)
	}
}

// TestAClockThatStepsBack mints nothing and locks nobody out for longer than a
// full refill takes.
func TestAClockThatStepsBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 150 {
		p := randomPolicy(rng)
		l, model := NewLimiter(p), ratelimittest.NewModel(p)
		fullRefill := ratelimittest.NewModel(p).Consume(0, p.Capacity).ResetAfter.Microseconds()
		micros := int64(1) << 49
		var passed int64 // that a clock which never steps back would have counted
		for range 200 {
			cost := rng.Int64N(p.Capacity + 1)
			got, err := l.consume(7, micros, cost)
			require.NoError(t, err)
			if got.Allowed {
				most := model.Consume(time.Duration(passed)*time.Microsecond, cost)
				require.True(t, most.Allowed, "%+v: tokens were minted", p)
			}
			step := pause(rng, got)
			passed += step
			micros += step
			if rng.IntN(4) == 0 {
				micros -= rng.Int64N(1 << uint(1+rng.IntN(48)))
				micros = max(micros, 1<<40)
				_, err := l.consume(7, micros, p.Capacity) // somebody notices
				require.NoError(t, err)
				got, err := l.consume(7, micros+fullRefill, 0)
				require.NoError(t, err)
				assert.Equal(t, p.Capacity, got.Remaining, "%+v: locked out", p)
			}
		}
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
				got, err := l.consume(7, micros, cost)
				require.NoError(t, err)
				require.Equal(t, want, got, "%+v: cost %d at %d", p, cost, micros)
			}
		}
	}
}
