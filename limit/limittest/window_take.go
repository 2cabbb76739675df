package limittest

import (
	"context"
	"math"
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

// windowCharges charges more than the maximum, nothing, everything, and a blocked key.
func windowCharges[P any](t *testing.T, h WindowHarness[P], policy func(string, int64) P) {
	l, ctx := h.New(policy("charges", 5)), context.Background()
	if !can(l, limit.Take{Mode: mode.Charging}) {
		t.Skip("the limiter cannot be charged")
	}
	full := limit.Decision{Allowed: true, Limit: 5, Remaining: 5}
	require.NoError(t, limit.Charge(ctx, l, key("ann"), 0))
	assert.Equal(t, full, consume(t, l, key("ann"), 0))
	for _, step := range []struct{ charge, remaining int64 }{{2, 3}, {2, 1}, {2, 0}, {2, 0}, {math.MaxInt64, 0}} {
		require.NoError(t, limit.Charge(ctx, l, key("ann"), step.charge))
		assert.Equal(t, step.remaining, consume(t, l, key("ann"), 0).Remaining)
		assert.Equal(t, step.remaining, consume(t, l, key("ann"), step.remaining+1).Remaining, "a denial")
	}
	d := consume(t, l, key("ann"), 1)
	assert.False(t, d.Allowed)
	assert.Zero(t, d.Remaining)
	h.Sleep(d.RetryAfter - time.Microsecond)
	assert.False(t, consume(t, l, key("ann"), 1).Allowed)
	h.Sleep(time.Microsecond)
	assert.True(t, consume(t, l, key("ann"), 1).Allowed)
	assert.Equal(t, full, consume(t, l, key("bob"), 0))
	if b, ok := l.(limit.Blocker); ok {
		require.NoError(t, b.Block(ctx, key("bob"), time.Minute))
		require.NoError(t, limit.Charge(ctx, l, key("bob"), 5))
		h.Sleep(time.Minute)
		assert.Equal(t, full, consume(t, l, key("bob"), 0), "nothing is taken from a blocked key")
	}
}

// reserved returns a reservation of ann that waits for at most an hour.
func reserved(t *testing.T, l limit.Limiter, cost int64) limit.Decision {
	t.Helper()
	d, err := l.Take(context.Background(), key("ann"), limit.Take{Cost: cost, MaxWait: time.Hour, Receipt: true})
	require.NoError(t, err)
	require.True(t, d.Allowed)
	return d
}

// windowReservationsAreUndone undoes reservations before and after their tokens could be spent, and
// looks at a key with reservations during a block.
func windowReservationsAreUndone[P any](t *testing.T, h WindowHarness[P], policy func(string, int64) P) {
	l, ctx := h.New(policy("reservations", 5)), context.Background()
	if !can(l, limit.Take{MaxWait: time.Hour}) {
		t.Skip("the limiter cannot reserve")
	}
	consume(t, l, key("ann"), 5)
	h.Sleep(consume(t, l, key("ann"), 1).RetryAfter - 30*time.Minute)
	one, two := reserved(t, l, 1), reserved(t, l, 2)
	assert.Positive(t, one.RetryAfter)
	assert.GreaterOrEqual(t, two.RetryAfter, one.RetryAfter, "the order of the calls")
	assert.Zero(t, consume(t, l, key("ann"), 0).Remaining)
	granted, _, err := limit.ConsumeUpTo(ctx, l, key("ann"), 3)
	require.NoError(t, err)
	assert.Zero(t, granted, "later calls queue behind")
	require.NoError(t, one.Receipt.Undo(ctx, l, key("ann")))
	again := reserved(t, l, 1)
	assert.LessOrEqual(t, again.RetryAfter, two.RetryAfter, "undoing helps later calls")
	h.Sleep(again.RetryAfter)
	before := consume(t, l, key("ann"), 0).Remaining
	require.NoError(t, again.Receipt.Undo(ctx, l, key("ann")))
	assert.Equal(t, before+1, consume(t, l, key("ann"), 0).Remaining, "a token returns after it could be spent")
	if b, ok := l.(limit.Blocker); ok {
		reserved(t, l, 2)
		require.NoError(t, b.Block(ctx, key("ann"), time.Minute))
		want := limit.Decision{Limit: 5, RetryAfter: time.Minute, ResetAfter: time.Minute, Reason: limit.Blocked}
		for _, mode := range []mode.Mode{mode.Looking, mode.Whole} {
			d, err := l.Take(ctx, key("ann"), limit.Take{Cost: 1, MaxWait: time.Hour, Mode: mode})
			require.NoError(t, err)
			assert.Equal(t, want, d, "a block denies calls that would wait longer")
		}
	}
}

// windowDenialWaits denies calls that may wait for several times, and then makes one that may wait
// long enough: what a limiter remembers of one must not decide about another.
func windowDenialWaits[P any](t *testing.T, h WindowHarness[P], policy func(string, int64) P) {
	l, ctx := h.New(policy("remembered", 5)), context.Background()
	if !can(l, limit.Take{MaxWait: time.Hour}) {
		t.Skip("the limiter cannot reserve")
	}
	consume(t, l, key("ann"), 5)
	left := consume(t, l, key("ann"), 1).RetryAfter
	h.Sleep(left - time.Minute)
	for _, maxWait := range []time.Duration{0, 20 * time.Second, 40 * time.Second} {
		for range 2 {
			d, err := limit.Reserve(ctx, l, key("ann"), 1, maxWait)
			require.NoError(t, err)
			assert.False(t, d.Allowed)
			assert.Equal(t, time.Minute-maxWait, d.RetryAfter, "within %v", maxWait)
		}
	}
	d, err := limit.Reserve(ctx, l, key("ann"), 1, time.Minute)
	require.NoError(t, err)
	assert.True(t, d.Allowed, "it may wait long enough")
	assert.Equal(t, time.Minute, d.RetryAfter)
}

// windowChangeIsRejected tries invalid changes.
func windowChangeIsRejected[P any](t *testing.T, h WindowHarness[P], policy func(string, int64) P) {
	l, ok := h.New(policy("rejected", 5)).(limit.PolicySetter[P])
	if !ok {
		t.Skip("the policy cannot change")
	}
	consume(t, l, key("ann"), 2)
	for _, invalid := range []P{policy("rejected", 0), policy("other", 5), policy("", 5)} {
		assert.Error(t, l.SetPolicy(invalid))
	}
	assert.EqualValues(t, 3, consume(t, l, key("ann"), 0).Remaining)
	require.NoError(t, l.SetPolicy(policy("rejected", 9)))
	assert.EqualValues(t, 7, consume(t, l, key("ann"), 0).Remaining)
	assert.EqualValues(t, 9, l.(adapter.Describer).Describe()[0].Limit)
	consume(t, l, key("ann"), 9) // denied, which a limiter remembers
	require.NoError(t, l.SetPolicy(policy("rejected", 20)))
	assert.EqualValues(t, 9, consume(t, l, key("ann"), 9).Remaining)
	require.NoError(t, l.SetPolicy(policy("rejected", 3)))
	d := consume(t, l, key("ann"), 1)
	assert.Zero(t, d.Remaining, "more is taken than the present policy allows")
	assert.False(t, d.Allowed)
}

// windowUndoAfterChange undoes a call from before the same policy is set again, one from before a change,
// and one from after it.
func windowUndoAfterChange[P any](t *testing.T, h WindowHarness[P], policy func(string, int64) P) {
	l, ok := h.New(policy("undo-change", 5)).(limit.PolicySetter[P])
	if !ok {
		t.Skip("the policy cannot change")
	}
	take := func() limit.Receipt {
		d, err := l.Take(context.Background(), key("ann"), limit.Take{Cost: 2, Receipt: true})
		require.NoError(t, err)
		return d.Receipt
	}
	unchanged := take()
	require.NoError(t, l.SetPolicy(policy("undo-change", 5)))
	require.NoError(t, unchanged.Undo(context.Background(), l, key("ann")))
	assert.EqualValues(t, 5, consume(t, l, key("ann"), 0).Remaining, "no change")
	before := take()
	require.NoError(t, l.SetPolicy(policy("undo-change", 9)))
	require.NoError(t, before.Undo(context.Background(), l, key("ann")))
	assert.EqualValues(t, 7, consume(t, l, key("ann"), 0).Remaining)
	after := take()
	require.NoError(t, after.Undo(context.Background(), l, key("ann")))
	assert.EqualValues(t, 7, consume(t, l, key("ann"), 0).Remaining)
}

// windowChangesConcurrently changes the maximum while callers take tokens.
func windowChangesConcurrently[P any](t *testing.T, h WindowHarness[P], policy func(string, int64) P) {
	l := h.New(policy("concurrent changes", 50))
	setter, ok := l.(limit.PolicySetter[P])
	if !ok {
		t.Skip("the policy cannot change")
	}
	var granted atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 40 {
				if d, err := limit.Consume(context.Background(), l, key("ann"), 1); assert.NoError(t, err) && d.Allowed {
					granted.Add(1)
				}
			}
		})
	}
	for n := range int64(51) {
		require.NoError(t, setter.SetPolicy(policy("concurrent changes", 50+n%2*50)))
	}
	wg.Wait()
	assert.LessOrEqual(t, granted.Load(), int64(100))
	require.NoError(t, setter.SetPolicy(policy("concurrent changes", 200)))
	assert.Equal(t, 200-granted.Load(), consume(t, l, key("ann"), 0).Remaining)
}
