package limittest

import (
	"math/big"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
)

// SlidingCounterCases returns the rules of a sliding-window counter.
func SlidingCounterCases() []WindowCase[limit.WindowPolicy] {
	return append(commonCases(hourly),
		WindowCase[limit.WindowPolicy]{"the previous window counts in part", counterWeighsPrevious},
		WindowCase[limit.WindowPolicy]{"a refund returns the newest tokens", counterRefundsNewest},
		WindowCase[limit.WindowPolicy]{"large numbers", counterLargeNumbers},
		WindowCase[limit.WindowPolicy]{"a large charge", counterLargeCharge},
		WindowCase[limit.WindowPolicy]{"equals the model", counterEqualsModel},
		WindowCase[limit.WindowPolicy]{"grants in an interval", counterIntervals},
		WindowCase[limit.WindowPolicy]{"the policy changes", func(t *testing.T, h WindowHarness[limit.WindowPolicy]) { counterPolicyChanges(t, h, false) }},
		WindowCase[limit.WindowPolicy]{"processes have different policies", func(t *testing.T, h WindowHarness[limit.WindowPolicy]) { counterPolicyChanges(t, h, true) }},
		WindowCase[limit.WindowPolicy]{"the length of the window changes", counterWindowChanges},
		WindowCase[limit.WindowPolicy]{"reservations reach the next window", counterReservesNextWindow},
		WindowCase[limit.WindowPolicy]{"the clock steps", func(t *testing.T, h WindowHarness[limit.WindowPolicy]) { windowClockSteps(t, h, 2, 1_000_000) }},
	)
}

// align sleeps until a window begins.
func align(h WindowHarness[limit.WindowPolicy], window time.Duration) {
	into := time.Duration(h.Now().UnixMicro()%window.Microseconds()) * time.Microsecond
	h.Sleep(window - into)
}

func counterWeighsPrevious(t *testing.T, h WindowHarness[limit.WindowPolicy]) {
	l := h.New(limit.WindowPolicy{Name: "weighs", Max: 10, Window: time.Second})
	align(h, time.Second)
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 10, Remaining: 2, ResetAfter: 2 * time.Second}, consume(t, l, key("ann"), 8))
	h.Sleep(time.Second)
	// 8 tokens count, and 7.5 after 63 ms: RetryAfter is when at most 7 do.
	assert.Equal(t, limit.Decision{Limit: 10, Remaining: 2, RetryAfter: 125 * time.Millisecond, ResetAfter: time.Second}, consume(t, l, key("ann"), 3))
	h.Sleep(125*time.Millisecond - time.Microsecond)
	assert.Equal(t, limit.Decision{Limit: 10, Remaining: 2, RetryAfter: time.Microsecond, ResetAfter: 875*time.Millisecond + time.Microsecond}, consume(t, l, key("ann"), 3))
	h.Sleep(time.Microsecond)
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 10, ResetAfter: 1875 * time.Millisecond}, consume(t, l, key("ann"), 3))
	// In this window, at most 3 and a part of 8 count, so a cost of 8 must wait for the next one.
	assert.Equal(t, 875*time.Millisecond+334*time.Millisecond, consume(t, l, key("ann"), 8).RetryAfter)
}

func counterRefundsNewest(t *testing.T, h WindowHarness[limit.WindowPolicy]) {
	l := h.New(limit.WindowPolicy{Name: "newest", Max: 10, Window: time.Second})
	align(h, time.Second)
	consume(t, l, key("ann"), 6)
	h.Sleep(1500 * time.Millisecond)
	consume(t, l, key("ann"), 4)
	require.NoError(t, limit.Refund(t.Context(), l, key("ann"), 6))
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 10, Remaining: 8, ResetAfter: 500 * time.Millisecond}, consume(t, l, key("ann"), 0), "4 of the window are left, which count as 2")
}

// counterLargeNumbers uses counts whose products with a time need all bits of a float64.
func counterLargeNumbers(t *testing.T, h WindowHarness[limit.WindowPolicy]) {
	const maximum = 1<<51/86_400_000 - 1
	p := limit.WindowPolicy{Name: "large", Max: maximum, Window: 24 * time.Hour}
	require.NoError(t, p.Validate())
	l, m := h.New(p), &counterModel{maximum: maximum, window: 86_400_000, counts: map[int64]int64{}}
	align(h, p.Window)
	requireSame := func(cost int64) {
		want, _ := modelTake(m, h.Now().UnixMicro(), cost, maximum, 4*p.Window.Microseconds(), time.Hour)
		got, err := limit.Reserve(t.Context(), l, key("ann"), cost, time.Hour)
		require.NoError(t, err)
		require.Equal(t, want, got)
		h.Sleep(13*time.Hour + 777_777*time.Microsecond)
	}
	for _, cost := range []int64{maximum - 1, 2, 1, 1, 7, maximum} {
		requireSame(cost)
	}
	require.NoError(t, limit.Charge(t.Context(), l, key("ann"), 1<<60))
	m.add(h.Now().UnixMicro(), 1<<60, true)
	for _, cost := range []int64{maximum, 1, maximum / 3, 12345} {
		requireSame(cost)
	}
}

// counterLargeCharge charges a window of a year as much as the policy of a short one permits, whose
// product with the year has more bits than an integer.
func counterLargeCharge(t *testing.T, h WindowHarness[limit.WindowPolicy]) {
	const year = 365 * 24 * time.Hour
	with := h.withPolicies(t, []limit.WindowPolicy{
		{Name: "charge", Max: 5, Window: year}, {Name: "charge", Max: 1 << 51, Window: time.Millisecond},
	}, false)
	consume(t, with(0), key("ann"), 1)
	require.NoError(t, limit.Charge(t.Context(), with(1), key("ann"), 1<<60))
	reset := consume(t, with(0), key("ann"), 0).ResetAfter
	for range 2 {
		d := consume(t, with(0), key("ann"), 5)
		assert.False(t, d.Allowed)
		assert.Zero(t, d.Remaining)
		assert.Equal(t, reset, d.RetryAfter, "5 tokens fit when nothing counts")
		half := (reset / 2).Truncate(time.Microsecond) // clocks count microseconds
		h.Sleep(half)
		reset -= half
	}
}

// A counterModel is the tokens of every window by its index since 1970.
type counterModel struct {
	maximum int64
	window  int64 // in milliseconds
	counts  map[int64]int64
}

func (m *counterModel) index(at int64) int64 { return at / 1000 / m.window }

func (m *counterModel) fits(at, cost int64) bool {
	index, elapsed := m.index(at), at/1000%m.window
	weighed := new(big.Rat).Mul(rat(m.counts[index-1]), big.NewRat(m.window-elapsed, m.window))
	weighed.Add(weighed, rat(m.counts[index]+cost))
	return m.counts[index+1] == 0 && weighed.Cmp(rat(m.maximum)) <= 0
}

// reaches permits the window of a call, and the next one.
func (m *counterModel) reaches(at, spent, _ int64) bool { return m.index(spent) <= m.index(at)+1 }

// add counts at most twice the maximum.
func (m *counterModel) add(at, tokens int64, _ bool) {
	m.counts[m.index(at)] = min(m.counts[m.index(at)]+tokens, 2*m.maximum)
}

func (m *counterModel) remove(at, tokens, spent int64) {
	index := m.index(at)
	for _, i := range []int64{index + 1, index, index - 1} {
		if spent == 0 || i == m.index(spent) {
			removed := min(tokens, m.counts[i])
			m.counts[i] -= removed
			tokens -= removed
		}
	}
}

func counterEqualsModel(t *testing.T, h WindowHarness[limit.WindowPolicy]) {
	r := &randomCalls{rng: rand.New(rand.NewPCG(15, 16))}
	for n := range h.rounds() {
		p := r.windowPolicy("model-"+strconv.Itoa(n), 1_000_000)
		newModel := func() windowModel {
			return &counterModel{maximum: p.Max, window: p.Window.Milliseconds(), counts: map[int64]int64{}}
		}
		requireEqualsModel(t, h, h.New(p), newModel, r, p.Max, 4*p.Window.Microseconds())
	}
}

// counterIntervals checks the bound of one policy.
func counterIntervals(t *testing.T, h WindowHarness[limit.WindowPolicy]) {
	r := &randomCalls{rng: rand.New(rand.NewPCG(17, 18))}
	for n := range 10 {
		p := r.windowPolicy("intervals-"+strconv.Itoa(n), 50)
		l, start := h.New(p), h.Now()
		var grants grantLog
		for range 100 {
			grants.add(h.Now().Sub(start), r.take(t, l, p.Max))
			h.Sleep(r.sleep(p.Window))
		}
		grants.requireBound(t, []limit.WindowPolicy{p}, time.Millisecond)
	}
}

func counterPolicyChanges(t *testing.T, h WindowHarness[limit.WindowPolicy], processes bool) {
	r := &randomCalls{rng: rand.New(rand.NewPCG(19, 20))}
	for n := range h.rounds() {
		policies := r.changingPolicies(n, "changes-"+strconv.FormatBool(processes)+strconv.Itoa(n))
		requireWindowBound(t, h, r, policies, time.Millisecond, processes)
	}
}

// counterWindowChanges takes and reserves by policies with windows of two lengths.
func counterWindowChanges(t *testing.T, h WindowHarness[limit.WindowPolicy]) {
	reserve := func(l limit.Limiter, cost int64) limit.Decision {
		d, err := limit.Reserve(t.Context(), l, key("ann"), cost, time.Minute)
		require.NoError(t, err)
		return d
	}
	with := h.withPolicies(t, []limit.WindowPolicy{
		{Name: "length", Max: 50, Window: 10 * time.Second}, {Name: "length", Max: 1, Window: 200 * time.Millisecond},
	}, false)
	align(h, 10*time.Second)
	consume(t, with(1), key("ann"), 1)
	d := reserve(with(0), 50)
	assert.Equal(t, []any{false, 400 * time.Millisecond}, []any{d.Allowed, d.RetryAfter}, "it fits at once when the short windows are empty")
	consume(t, with(0), key("ann"), 49)
	h.Sleep(time.Second)
	assert.EqualValues(t, 0, consume(t, with(0), key("ann"), 0).Remaining, "the tokens return in a long window")

	with = h.withPolicies(t, []limit.WindowPolicy{
		{Name: "reserved", Max: 10, Window: 10 * time.Second}, {Name: "reserved", Max: 50, Window: 12 * time.Second},
	}, false)
	align(h, 10*time.Second)
	consume(t, with(0), key("ann"), 10)
	h.Sleep(10 * time.Second)
	require.Equal(t, 5*time.Second, reserve(with(0), 5).RetryAfter)
	d = consume(t, with(1), key("ann"), 1)
	assert.Equal(t, []any{false, 5 * time.Second, int64(0)}, []any{d.Allowed, d.RetryAfter, d.Remaining}, "no policy changes windows with reservations")
	h.Sleep(5 * time.Second)
	assert.EqualValues(t, 39, consume(t, with(1), key("ann"), 1).Remaining)
}

// counterReservesNextWindow reserves in the current window, in the next one, and not in the one
// after it.
func counterReservesNextWindow(t *testing.T, h WindowHarness[limit.WindowPolicy]) {
	l := h.New(limit.WindowPolicy{Name: "next", Max: 10, Window: time.Second})
	align(h, time.Second)
	consume(t, l, key("ann"), 10)
	h.Sleep(time.Second)
	for _, step := range []struct {
		cost int64
		want limit.Decision
	}{
		{4, limit.Decision{Allowed: true, Limit: 10, RetryAfter: 400 * time.Millisecond, ResetAfter: 2 * time.Second}},
		{5, limit.Decision{Allowed: true, Limit: 10, RetryAfter: 900 * time.Millisecond, ResetAfter: 2 * time.Second}},
		{4, limit.Decision{Allowed: true, Limit: 10, RetryAfter: 1334 * time.Millisecond, ResetAfter: 3 * time.Second}},
		{7, limit.Decision{Limit: 10, RetryAfter: time.Second, ResetAfter: 3 * time.Second}},
		{1, limit.Decision{Allowed: true, Limit: 10, RetryAfter: 1445 * time.Millisecond, ResetAfter: 3 * time.Second}},
	} {
		d, err := limit.Reserve(t.Context(), l, key("ann"), step.cost, time.Minute)
		require.NoError(t, err)
		assert.Equal(t, step.want, d, "a reservation of %d", step.cost)
	}
}
