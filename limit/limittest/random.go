package limittest

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/mode"
)

// EqualsModel compares decisions with those of a [Model], for a number of random policies, and
// random costs and times. It includes refunds and reservations if the limiter can do them.
func EqualsModel(t *testing.T, h Harness, policies int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range policies {
		p := randomPolicy(rng, "equals-model-"+strconv.Itoa(n))
		l, model := h.New(p), NewModel(p)
		at := time.Duration(0)
		leases := randomLeases{rng: rng, limiter: l, model: model, key: limit.Key{"user"}}
		undos := randomUndos{rng: rng, limiter: l, model: model, key: limit.Key{"user"}}
		pass := func(d time.Duration) {
			h.Sleep(d)
			at += d
		}
		pass(time.Duration(rng.Int64N(1<<uint(1+rng.IntN(40)))) * time.Microsecond)
		for step := range 200 {
			cost := randomCost(rng, p)
			got, err := limit.Consume(context.Background(), l, limit.Key{"user"}, cost)
			require.NoError(t, err)
			require.Equal(t, model.Consume(at, cost), got, "%+v: step %d, cost %d, at %v", p, step, cost, at)
			if can(l, limit.Take{Mode: mode.Returning}) && rng.IntN(8) == 0 {
				tokens := randomCost(rng, p)
				require.NoError(t, limit.Refund(context.Background(), l, limit.Key{"user"}, tokens))
				model.Refund(at, tokens)
			}
			if can(l, limit.Take{MaxWait: time.Hour}) && rng.IntN(8) == 0 {
				cost, maxWait := randomCost(rng, p), min(pause(rng, got), time.Hour)
				got, err := limit.Reserve(context.Background(), l, limit.Key{"user"}, cost, maxWait)
				require.NoError(t, err)
				require.Equal(t, model.Reserve(at, cost, maxWait), got, "%+v: step %d, cost %d within %v, at %v", p, step, cost, maxWait, at)
			}
			if can(l, limit.Take{Mode: mode.Undoing}) {
				undos.step(t, at, randomCost(rng, p))
			}
			if can(l, limit.Take{Lease: time.Minute, Receipt: true}) {
				leases.step(t, at, randomCost(rng, p), pause(rng, got))
			}
			pass(pause(rng, got))
		}
	}
}

// ClockGoesBackwards moves the limiters' clock backwards, for a number of random policies. That
// must create no tokens and deny no key for longer than a bucket takes to fill. A store must also
// forgive no deficit, and keep a block for at most its length again. It needs Harness.Rewind.
func ClockGoesBackwards(t *testing.T, h Harness, policies int) {
	t.Helper()
	if h.Shared {
		blockAfterStepBack(t, h)
		deficitAfterStepBack(t, h)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for n := range policies {
		p := randomPolicy(rng, "backwards-"+strconv.Itoa(n))
		l, model := h.New(p), NewModel(p)
		fullRefill := NewModel(p).Consume(0, p.Capacity).ResetAfter
		consume := func(cost int64) limit.Decision {
			d, err := limit.Consume(context.Background(), l, limit.Key{"user"}, cost)
			require.NoError(t, err)
			return d
		}
		var passed time.Duration // on a clock that never goes backwards
		for range 50 {
			cost := rng.Int64N(p.Capacity + 1)
			got := consume(cost)
			if got.Allowed {
				require.True(t, model.Consume(passed, cost).Allowed, "%+v: tokens were created", p)
			}
			step := pause(rng, got)
			h.Sleep(step)
			passed += step
			if rng.IntN(4) > 0 {
				continue
			}
			h.Rewind(time.Duration(rng.Int64N(1<<uint(1+rng.IntN(45)))) * time.Microsecond)
			consume(p.Capacity) // the limiter detects it at the next call
			h.Sleep(fullRefill)
			passed += fullRefill
			require.Equal(t, p.Capacity, consume(0).Remaining, "%+v: the bucket did not fill", p)
		}
	}
}

func randomPolicy(rng *rand.Rand, name string) limit.Policy {
	for {
		p := limit.Policy{
			Name:     name,
			Capacity: 1 + rng.Int64N(1<<uint(1+rng.IntN(30))),
			Refill:   1 + rng.Int64N(1<<uint(1+rng.IntN(14))),
			Per:      time.Duration(1+rng.Int64N(1<<uint(1+rng.IntN(36)))) * time.Microsecond,
		}
		if rng.IntN(3) == 0 {
			p.Per = []time.Duration{0, time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour}[rng.IntN(6)]
		}
		// A time.Duration must hold many refills.
		if p.Validate() == nil && NewModel(p).Consume(0, p.Capacity).ResetAfter < 100*24*time.Hour {
			return p
		}
	}
}

// randomCost returns a small cost half of the time, and sometimes one above the capacity.
func randomCost(rng *rand.Rand, p limit.Policy) int64 {
	if rng.IntN(2) == 0 {
		return rng.Int64N(min(p.Capacity, 3) + 1)
	}
	return rng.Int64N(2*p.Capacity + 1)
}

// pause returns a random time to sleep, often exactly what the decision says or a microsecond less.
func pause(rng *rand.Rand, d limit.Decision) time.Duration {
	switch rng.IntN(5) {
	case 0:
		return 0
	case 1:
		if d.RetryAfter != limit.Never {
			return max(0, d.RetryAfter-time.Duration(rng.Int64N(2))*time.Microsecond)
		}
		return time.Microsecond
	case 2:
		return max(0, d.ResetAfter-time.Duration(rng.Int64N(2))*time.Microsecond)
	default:
		return time.Duration(rng.Int64N(d.ResetAfter.Microseconds()+2)) * time.Microsecond
	}
}
