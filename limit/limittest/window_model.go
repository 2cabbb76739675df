package limittest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// A windowModel is the definition of a limiter, without regard to speed. Times are microseconds of
// the limiter's clock.
type windowModel interface {
	// fits reports whether a cost above 0 can be spent at a time, if no more tokens are taken until
	// then. Once it can, it can at all later times.
	fits(at, cost int64) bool
	// reaches reports whether a call at a time may take a cost that can be spent at another, if it
	// may wait as long as it likes.
	reaches(at, spent, cost int64) bool
	// add takes tokens that can be spent at a time, or charges them, even if they do not fit.
	add(at, tokens int64, charged bool)
	// remove returns at a time tokens that count: those that could be spent at another, or if that
	// is 0 the newest.
	remove(at, tokens, spent int64)
}

// first returns the first time from at on at which a condition holds, which must be at most horizon
// later. Once it holds, it holds at all later times.
func first(at, horizon int64, holds func(int64) bool) int64 {
	low, high := at, at+horizon
	for low < high {
		if middle := low + (high-low)/2; holds(middle) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// modelTake returns the Decision of a model, and when the cost can be spent if it is allowed. All
// tokens must have returned after horizon microseconds.
func modelTake(m windowModel, at, cost, maximum, horizon int64, maxWait time.Duration) (d limit.Decision, spent int64) {
	micros := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	d, spent = limit.Decision{Limit: maximum}, at
	switch {
	case cost > maximum:
		d.RetryAfter = limit.Never
	case cost == 0:
		d.Allowed = true
	default:
		spent = first(at, horizon, func(at int64) bool { return m.fits(at, cost) })
		allowed := first(at, horizon, func(at int64) bool {
			return spent-at <= maxWait.Microseconds() && m.reaches(at, spent, cost)
		})
		d.Allowed, d.RetryAfter = allowed == at, micros(allowed-at)
		if d.Allowed {
			d.RetryAfter = micros(spent - at)
			m.add(spent, cost, false)
		}
	}
	d.Remaining = first(0, maximum, func(n int64) bool { return !m.fits(at, n+1) })
	d.ResetAfter = micros(first(at, horizon, func(at int64) bool { return m.fits(at, maximum) }) - at)
	return d, spent
}

// A modelRun compares a limiter with a model.
type modelRun[P any] struct {
	h                WindowHarness[P]
	l                adapter.Resetter
	m                windowModel
	newModel         func() windowModel
	r                *randomCalls
	maximum, horizon int64

	taken []takenTokens
}

type takenTokens struct {
	spent   int64
	receipt limit.Receipt
}

// requireEqualsModel makes random calls and compares every Decision with that of the model. Without
// reservations, all tokens return within horizon microseconds.
func requireEqualsModel[P any](t *testing.T, h WindowHarness[P], l adapter.Resetter, newModel func() windowModel, r *randomCalls, maximum, horizon int64) {
	t.Helper()
	run := &modelRun[P]{h: h, l: l, m: newModel(), newModel: newModel, r: r, maximum: maximum, horizon: horizon}
	maxWait := time.Duration(0)
	for step := range 120 {
		if r.rng.IntN(3) == 0 {
			maxWait = run.maxWait()
		}
		d := run.take(t, step, maxWait)
		run.change(t)
		h.Sleep(pause(r.rng, d))
	}
}

// maxWait returns how long calls may wait: not at all, for some part of the horizon, or as long as
// possible.
func (run *modelRun[P]) maxWait() time.Duration {
	longest := min(run.horizon, adapter.MaxReserve.Microseconds())
	switch {
	case !can(run.l, limit.Take{MaxWait: 1}) || run.r.rng.IntN(3) == 0:
		return 0
	case run.r.rng.IntN(4) == 0:
		return adapter.MaxReserve
	default:
		return time.Duration(run.r.rng.Int64N(longest))*time.Microsecond + time.Duration(run.r.rng.Int64N(1000))
	}
}

func (run *modelRun[P]) take(t *testing.T, step int, maxWait time.Duration) limit.Decision {
	t.Helper()
	at := run.h.Now().UnixMicro()
	take := limit.Take{Cost: run.r.cost(run.maximum), MaxWait: maxWait, Receipt: step%2 == 0}
	look := take
	look.Mode = mode.Looking
	seen, err := run.l.Take(context.Background(), key("ann"), look)
	require.NoError(t, err)
	got, err := run.l.Take(context.Background(), key("ann"), take)
	require.NoError(t, err)
	want, spent := modelTake(run.m, at, take.Cost, run.maximum, run.horizon+adapter.MaxReserve.Microseconds(), maxWait)
	if got.Receipt != (limit.Receipt{}) {
		require.Equal(t, take.Cost, got.Receipt.Tokens)
		run.taken = append(run.taken, takenTokens{spent, got.Receipt})
		got.Receipt = limit.Receipt{}
	}
	require.Equal(t, want, got, "step %d: %+v of %d at %v", step, take, run.maximum, run.h.Now())
	require.Equal(t, want, seen, "step %d: a look at %+v", step, take)
	return got
}

// change makes a call that is never denied, or none.
func (run *modelRun[P]) change(t *testing.T) {
	t.Helper()
	ctx, at, tokens := context.Background(), run.h.Now().UnixMicro(), run.r.cost(run.maximum)
	switch run.r.rng.IntN(14) {
	case 0:
		require.NoError(t, limit.Refund(ctx, run.l, key("ann"), tokens))
		run.m.remove(at, tokens, 0)
	case 1:
		if run.r.rng.IntN(4) == 0 {
			require.NoError(t, run.l.Reset(ctx, key("ann")))
			run.m = run.newModel()
		}
	case 2, 3, 4:
		if len(run.taken) > 0 {
			one := run.taken[max(0, len(run.taken)-1-run.r.rng.IntN(4))]
			require.NoError(t, one.receipt.Undo(ctx, run.l, key("ann")))
			run.m.remove(at, one.receipt.Tokens, one.spent)
		}
	case 5:
		if can(run.l, limit.Take{Mode: mode.Charging}) {
			tokens *= 1 + run.r.rng.Int64N(3)
			require.NoError(t, limit.Charge(ctx, run.l, key("ann"), tokens))
			run.m.add(at, tokens, true)
		}
	}
}
