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
		WindowCase[limit.WindowPolicy]{"equals the model", counterEqualsModel},
		WindowCase[limit.WindowPolicy]{"grants in an interval", counterIntervals},
		WindowCase[limit.WindowPolicy]{"the policy changes", counterPolicyChanges},
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
	l, m := h.New(p), &counterModel{window: 86_400_000, counts: map[int64]int64{}}
	align(h, p.Window)
	for _, cost := range []int64{maximum - 1, 2, 1, 1, 7, maximum} {
		at := h.Now().UnixMicro()
		require.Equal(t, modelDecision(m, at, cost, maximum, 2*p.Window.Microseconds()), consume(t, l, key("ann"), cost))
		h.Sleep(13*time.Hour + 777_777*time.Microsecond)
	}
}

// A counterModel is the tokens of every window by its index since 1970.
type counterModel struct {
	window int64 // in milliseconds
	counts map[int64]int64
}

func (m *counterModel) used(at int64) int64 {
	tick := at / 1000
	index, elapsed := tick/m.window, tick%m.window
	weighed := new(big.Rat).Mul(rat(m.counts[index-1]), big.NewRat(m.window-elapsed, m.window))
	weighed.Add(weighed, rat(m.counts[index]))
	whole, rest := new(big.Int).QuoRem(weighed.Num(), weighed.Denom(), new(big.Int))
	return whole.Int64() + int64(rest.Sign())
}

func (m *counterModel) add(at, tokens int64) { m.counts[at/1000/m.window] += tokens }

func (m *counterModel) remove(at, tokens, taken int64) {
	index := at / 1000 / m.window
	for _, i := range []int64{index, index - 1} {
		if taken == 0 || i == taken/1000/m.window {
			removed := min(tokens, m.counts[i])
			m.counts[i] -= removed
			tokens -= removed
		}
	}
}

func (m *counterModel) reset() { clear(m.counts) }

func counterEqualsModel(t *testing.T, h WindowHarness[limit.WindowPolicy]) {
	r := &randomCalls{rng: rand.New(rand.NewPCG(15, 16))}
	for n := range h.rounds() {
		p := r.windowPolicy("model-"+strconv.Itoa(n), 1_000_000)
		m := &counterModel{window: p.Window.Milliseconds(), counts: map[int64]int64{}}
		requireEqualsModel(t, h, h.New(p), m, r, p.Max, 2*p.Window.Microseconds())
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

func counterPolicyChanges(t *testing.T, h WindowHarness[limit.WindowPolicy]) {
	if h.Rewind == nil {
		t.Skip("the limiters share no store")
	}
	r := &randomCalls{rng: rand.New(rand.NewPCG(19, 20))}
	for n := range h.rounds() {
		requireWindowBound(t, h, r, r.changingPolicies(n, "changes-"+strconv.Itoa(n)), time.Millisecond)
	}
}
