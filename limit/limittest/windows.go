package limittest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// A WindowHarness creates sliding-window logs, sliding-window counters or quotas, whose policies are
// of type P and whose clock a case can move.
type WindowHarness[P any] struct {
	// New returns a limiter. Limiters of different names must not influence each other.
	New func(P) adapter.Resetter

	// Shared says that limiters of one name share their records, as processes with one store do.
	// Cases may then call New several times with one name and different numbers.
	Shared bool

	// Sleep moves the limiters' clock forward by exactly d. Between two calls of Sleep, the
	// clock must not move.
	Sleep func(d time.Duration)

	// Now returns the time of the limiters' clock.
	Now func() time.Time

	// Rewind moves the clock backwards by d, as an administrator might, and makes the limiters forget
	// what they know of the store. It is nil if the limiters' clock cannot go backwards.
	Rewind func(d time.Duration)

	// Rounds is how many policies a case with random ones tries; 30 if 0.
	Rounds int
}

func (h WindowHarness[P]) rounds() int { return rounds(h.Rounds) }

func rounds(n int) int {
	if n == 0 {
		return 30
	}
	return n
}

// A WindowCase is one rule of a limiter with a policy of type P.
type WindowCase[P any] struct {
	Name string
	Run  func(*testing.T, WindowHarness[P])
}

// commonCases returns the rules that logs, counters and quotas share. The function policy returns
// one with a maximum and a period of at least a minute.
func commonCases[P any](policy func(name string, maximum int64) P) (cases []WindowCase[P]) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, WindowHarness[P], func(name string, maximum int64) P)
	}{
		{"all or none", windowAllOrNone[P]},
		{"keys and names are separate", windowKeysAreSeparate[P]},
		{"invalid arguments", windowInvalidArguments[P]},
		{"refund and reset", windowRefundAndReset[P]},
		{"undo", windowUndo[P]},
		{"look and part", windowLookAndPart[P]},
		{"charges", windowCharges[P]},
		{"reservations are undone", windowReservationsAreUndone[P]},
		{"a remembered denial waits", windowDenialWaits[P]},
		{"an invalid change is rejected", windowChangeIsRejected[P]},
		{"concurrent changes", windowChangesConcurrently[P]},
		{"undo after a change", windowUndoAfterChange[P]},
		{"block", windowBlock[P]},
		{"concurrent calls", windowConcurrentCalls[P]},
		{"in AllOf", windowInAllOf[P]},
	} {
		cases = append(cases, WindowCase[P]{c.name, func(t *testing.T, h WindowHarness[P]) { c.run(t, h, policy) }})
	}
	return cases
}

func windowAllOrNone[P any](t *testing.T, h WindowHarness[P], policy func(string, int64) P) {
	l := h.New(policy("all or none", 5))
	assert.True(t, consume(t, l, key("ann"), 3).Allowed)
	assert.False(t, consume(t, l, key("ann"), 3).Allowed)
	d := consume(t, l, key("ann"), 2)
	assert.True(t, d.Allowed, "a denied call takes nothing")
	assert.Zero(t, d.Remaining)
	assert.EqualValues(t, 5, d.Limit)
}

func windowKeysAreSeparate[P any](t *testing.T, h WindowHarness[P], policy func(string, int64) P) {
	one, other := h.New(policy("one", 1)), h.New(policy("other", 1))
	assert.True(t, consume(t, one, key("ann"), 1).Allowed)
	assert.True(t, consume(t, one, limit.Key{"user", "ann"}, 1).Allowed)
	assert.True(t, consume(t, one, limit.Key{}, 1).Allowed)
	assert.True(t, consume(t, other, key("ann"), 1).Allowed)
	assert.False(t, consume(t, one, key("ann"), 1).Allowed)
}

func windowInvalidArguments[P any](t *testing.T, h WindowHarness[P], policy func(string, int64) P) {
	l := h.New(policy("invalid", 1))
	d, err := limit.Consume(context.Background(), l, key("ann"), -1)
	assert.Error(t, err)
	assert.Zero(t, d)
	assert.Error(t, limit.Refund(context.Background(), l, key("ann"), -1))
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 1, Remaining: 1}, consume(t, l, key("ann"), 0))
}

func windowRefundAndReset[P any](t *testing.T, h WindowHarness[P], policy func(string, int64) P) {
	l, ctx := h.New(policy("refund", 5)), context.Background()
	consume(t, l, key("ann"), 4)
	require.NoError(t, limit.Refund(ctx, l, key("ann"), 0))
	assert.EqualValues(t, 1, consume(t, l, key("ann"), 0).Remaining)
	require.NoError(t, limit.Refund(ctx, l, key("ann"), 3))
	assert.EqualValues(t, 4, consume(t, l, key("ann"), 0).Remaining)
	require.NoError(t, limit.Refund(ctx, l, key("ann"), 1<<60))
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 5, Remaining: 5}, consume(t, l, key("ann"), 0), "a key never has more than Max")
	consume(t, l, key("ann"), 5)
	consume(t, l, key("bob"), 5)
	assert.False(t, consume(t, l, key("ann"), 1).Allowed)
	require.NoError(t, l.Reset(ctx, key("ann")))
	assert.True(t, consume(t, l, key("ann"), 5).Allowed)
	assert.False(t, consume(t, l, key("bob"), 1).Allowed, "a reset is of one key")
}

func windowUndo[P any](t *testing.T, h WindowHarness[P], policy func(string, int64) P) {
	l, ctx := h.New(policy("undo", 5)), context.Background()
	take := func(take limit.Take) limit.Decision {
		d, err := l.Take(ctx, key("ann"), take)
		require.NoError(t, err)
		return d
	}
	three := take(limit.Take{Cost: 3, Receipt: true})
	assert.EqualValues(t, 3, three.Receipt.Tokens)
	h.Sleep(time.Microsecond)
	consume(t, l, key("ann"), 1)
	require.NoError(t, three.Receipt.Undo(ctx, l, key("ann")))
	assert.EqualValues(t, 4, consume(t, l, key("ann"), 0).Remaining)
	require.NoError(t, three.Receipt.Undo(ctx, l, key("bob")), "an unused key")
	assert.EqualValues(t, 5, consume(t, l, key("bob"), 0).Remaining)
	assert.Zero(t, take(limit.Take{Cost: 5, Receipt: true}).Receipt, "a denial")
	assert.Zero(t, take(limit.Take{Receipt: true}).Receipt, "nothing")
	old := take(limit.Take{Cost: 2, Receipt: true})
	h.Sleep(2 * old.ResetAfter)
	consume(t, l, key("ann"), 5)
	require.NoError(t, old.Receipt.Undo(ctx, l, key("ann")))
	assert.Zero(t, consume(t, l, key("ann"), 0).Remaining, "what has returned does not return again")
}

func windowLookAndPart[P any](t *testing.T, h WindowHarness[P], policy func(string, int64) P) {
	l, ctx := h.New(policy("look", 5)), context.Background()
	for _, taken := range []int64{0, 3, 2} {
		consume(t, l, key("ann"), taken)
		for _, cost := range []int64{0, 2, 5, 6} {
			d, err := l.Take(ctx, key("ann"), limit.Take{Cost: cost, Mode: mode.Looking})
			require.NoError(t, err)
			again, err := l.Take(ctx, key("ann"), limit.Take{Cost: cost, Mode: mode.Looking, Receipt: true})
			require.NoError(t, err)
			assert.Equal(t, d, again, "a look takes nothing")
			got := consume(t, l, key("ann"), cost)
			assert.Equal(t, got, d, "a look at %d", cost)
			if got.Allowed {
				require.NoError(t, limit.Refund(ctx, l, key("ann"), cost))
			}
		}
	}
	for _, want := range []int64{3, 2, 0} {
		granted, d, err := limit.ConsumeUpTo(ctx, l, key("bob"), 3)
		require.NoError(t, err)
		assert.Equal(t, want, granted)
		assert.Equal(t, want > 0, d.Allowed)
		assert.Equal(t, want > 0, d.RetryAfter == 0)
	}
	for _, take := range []limit.Take{{Keep: 1}, {MaxWait: -1}, {MaxWait: 2 * time.Hour}, {Cost: -1, MaxWait: 1}, {MaxWait: 1, Mode: mode.Charging}, {Cost: -1, Mode: mode.Charging}} {
		d, err := l.Take(ctx, key("ann"), take)
		assert.Error(t, err)
		assert.Zero(t, d)
		assert.Error(t, adapter.Check(l, take))
	}
}

func windowBlock[P any](t *testing.T, h WindowHarness[P], policy func(string, int64) P) {
	if l, ok := h.New(policy("block", 5)).(limit.Blocker); ok {
		requireBlocks(t, l, 5, h.Sleep)
		if h.Rewind != nil {
			require.NoError(t, l.Block(context.Background(), key("eve"), time.Hour))
			h.Sleep(time.Minute)
			h.Rewind(10 * time.Hour)
			assert.Equal(t, time.Hour, consume(t, l, key("eve"), 1).RetryAfter, "a clock that goes back does not extend a block")
		}
	}
}

func windowConcurrentCalls[P any](t *testing.T, h WindowHarness[P], policy func(string, int64) P) {
	l := h.New(policy("concurrent", 50))
	var granted atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if d, err := limit.Consume(context.Background(), l, key("ann"), 1); assert.NoError(t, err) && d.Allowed {
					granted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 50, granted.Load())
}

func windowInAllOf[P any](t *testing.T, h WindowHarness[P], policy func(string, int64) P) {
	few, many := h.New(policy("few", 2)), h.New(policy("many", 10))
	both := limit.AllOf(many, few)
	assert.True(t, consume(t, both, key("ann"), 2).Allowed)
	d := consume(t, both, key("ann"), 1)
	assert.False(t, d.Allowed)
	assert.Contains(t, d.Policy, "few")
	assert.EqualValues(t, 8, consume(t, many, key("ann"), 0).Remaining, "a denial by one takes nothing of the other")
	require.Len(t, both.(adapter.Describer).Describe(), 2)
	assert.EqualValues(t, 10, both.(adapter.Describer).Describe()[0].Limit)
}

// requireBlocks checks that a limiter with a maximum can block a key.
func requireBlocks(t *testing.T, l limit.Blocker, maximum int64, sleep func(time.Duration)) {
	t.Helper()
	ctx := context.Background()
	requireDenied := func(left time.Duration) {
		t.Helper()
		want := limit.Decision{Limit: maximum, RetryAfter: left, ResetAfter: left, Reason: limit.Blocked}
		for _, cost := range []int64{0, 1, maximum, 0} {
			require.Equal(t, want, consume(t, l, key("ann"), cost), "cost %d", cost)
		}
		d, err := l.Take(ctx, key("ann"), limit.Take{Cost: 2, Mode: mode.Partial})
		require.NoError(t, err)
		require.Equal(t, want, d)
		want.RetryAfter = limit.Never
		require.Equal(t, want, consume(t, l, key("ann"), maximum+1))
	}
	for _, taken := range []int64{0, maximum} {
		consume(t, l, key("ann"), taken)
		for _, d := range []time.Duration{time.Hour, time.Minute, 2 * time.Minute} {
			require.NoError(t, l.Block(ctx, key("ann"), d), "a block replaces another")
			requireDenied(d)
			require.NoError(t, limit.Refund(ctx, l, key("ann"), maximum))
			sleep(time.Second)
			requireDenied(d - time.Second)
		}
		require.True(t, consume(t, l, key("bob"), 1).Allowed, "another key")
		sleep(2*time.Minute - time.Second - time.Microsecond)
		requireDenied(time.Microsecond)
		sleep(time.Microsecond)
		require.Equal(t, limit.Decision{Allowed: true, Limit: maximum, Remaining: maximum}, consume(t, l, key("ann"), 0), "nothing counts after a block")
	}
	require.NoError(t, l.Block(ctx, key("ann"), time.Hour))
	require.NoError(t, l.Reset(ctx, key("ann")))
	require.True(t, consume(t, l, key("ann"), maximum).Allowed)
	for _, d := range []time.Duration{0, -1, time.Nanosecond, 366 * 24 * time.Hour} {
		require.Error(t, l.Block(ctx, key("ann"), d))
	}
}
