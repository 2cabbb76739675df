package limittest

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// SlidingLogCases returns the rules of a sliding-window log.
func SlidingLogCases() []WindowCase[limit.WindowPolicy] {
	return append(commonCases(hourly),
		WindowCase[limit.WindowPolicy]{"the window is half-open", logIsHalfOpen},
		WindowCase[limit.WindowPolicy]{"a refund returns the newest tokens", logRefundsNewest},
		WindowCase[limit.WindowPolicy]{"equals the model", logEqualsModel},
		WindowCase[limit.WindowPolicy]{"the policy changes", func(t *testing.T, h WindowHarness[limit.WindowPolicy]) { logPolicyChanges(t, h, false) }},
		WindowCase[limit.WindowPolicy]{"processes have different policies", func(t *testing.T, h WindowHarness[limit.WindowPolicy]) { logPolicyChanges(t, h, true) }},
		WindowCase[limit.WindowPolicy]{"a refund is of the policy's window", logRefundsOwnWindow},
		WindowCase[limit.WindowPolicy]{"the clock steps", func(t *testing.T, h WindowHarness[limit.WindowPolicy]) { windowClockSteps(t, h, 1, adapter.MaxLog) }},
	)
}

func hourly(name string, maximum int64) limit.WindowPolicy {
	return limit.WindowPolicy{Name: name, Max: maximum, Window: time.Hour}
}

// logIsHalfOpen checks that a token that was taken exactly one window ago does not count.
func logIsHalfOpen(t *testing.T, h WindowHarness[limit.WindowPolicy]) {
	l := h.New(limit.WindowPolicy{Name: "half-open", Max: 2, Window: time.Second})
	consume(t, l, key("ann"), 1)
	h.Sleep(time.Millisecond)
	consume(t, l, key("ann"), 1)
	h.Sleep(time.Second - time.Millisecond - time.Microsecond)
	assert.Equal(t, limit.Decision{Limit: 2, RetryAfter: time.Microsecond, ResetAfter: time.Millisecond + time.Microsecond}, consume(t, l, key("ann"), 1))
	h.Sleep(time.Microsecond)
	assert.Equal(t, limit.Decision{Limit: 2, Remaining: 1, RetryAfter: time.Millisecond, ResetAfter: time.Millisecond}, consume(t, l, key("ann"), 2))
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 2, ResetAfter: time.Second}, consume(t, l, key("ann"), 1))
}

func logRefundsNewest(t *testing.T, h WindowHarness[limit.WindowPolicy]) {
	l := h.New(limit.WindowPolicy{Name: "newest", Max: 4, Window: time.Second})
	consume(t, l, key("ann"), 2)
	h.Sleep(600 * time.Millisecond)
	consume(t, l, key("ann"), 2)
	require.NoError(t, limit.Refund(t.Context(), l, key("ann"), 3))
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 4, Remaining: 3, ResetAfter: 400 * time.Millisecond}, consume(t, l, key("ann"), 0))
}

// logRefundsOwnWindow refunds more tokens than the policy's window holds. Those that only another
// policy of the same name counts stay.
func logRefundsOwnWindow(t *testing.T, h WindowHarness[limit.WindowPolicy]) {
	if !h.Shared {
		t.Skip("the limiters share no store")
	}
	long := h.New(limit.WindowPolicy{Name: "own", Max: 5, Window: time.Hour})
	short := h.New(limit.WindowPolicy{Name: "own", Max: 5, Window: time.Second})
	consume(t, long, key("ann"), 3)
	h.Sleep(time.Second)
	consume(t, short, key("ann"), 2)
	require.NoError(t, limit.Refund(t.Context(), short, key("ann"), 5))
	assert.EqualValues(t, 5, consume(t, short, key("ann"), 0).Remaining)
	assert.EqualValues(t, 2, consume(t, long, key("ann"), 0).Remaining)
}

// A logModel is the time of every token, in order.
type logModel struct {
	maximum, window int64
	times           []int64
}

func (m *logModel) used(at int64) (n int64) {
	for _, spent := range m.times {
		if spent > at-m.window {
			n++
		}
	}
	return n
}

func (m *logModel) fits(at, cost int64) bool { return m.used(at)+cost <= m.maximum }

// reaches bounds the size of the log.
func (m *logModel) reaches(at, _, cost int64) bool { return m.used(at)+cost <= 2*m.maximum }

// add keeps of charges the newest tokens, up to twice the maximum.
func (m *logModel) add(at, tokens int64, charged bool) {
	m.times = append(m.times, slices.Repeat([]int64{at}, int(tokens))...)
	slices.Sort(m.times)
	if charged {
		m.times = m.times[max(0, int64(len(m.times))-2*m.maximum):]
	}
}

func (m *logModel) remove(at, tokens, spent int64) {
	if spent == 0 {
		m.times = m.times[:int64(len(m.times))-min(tokens, m.used(at))]
		return
	}
	m.times = slices.DeleteFunc(m.times, func(one int64) bool {
		if one != spent || one <= at-m.window || tokens == 0 {
			return false
		}
		tokens--
		return true
	})
}

func logEqualsModel(t *testing.T, h WindowHarness[limit.WindowPolicy]) {
	r := &randomCalls{rng: rand.New(rand.NewPCG(11, 12))}
	for n := range h.rounds() {
		p := r.windowPolicy("model-"+strconv.Itoa(n), 100)
		if n == 0 {
			p.Max = adapter.MaxLog
		}
		window := p.Window.Microseconds()
		newModel := func() windowModel { return &logModel{maximum: p.Max, window: window} }
		requireEqualsModel(t, h, h.New(p), newModel, r, p.Max, 3*window)
	}
}

// logPolicyChanges calls limiters of one name with different numbers, as during rolling
// deployments, and checks every interval.
func logPolicyChanges(t *testing.T, h WindowHarness[limit.WindowPolicy], processes bool) {
	r := &randomCalls{rng: rand.New(rand.NewPCG(13, 14))}
	for n := range h.rounds() {
		policies := r.changingPolicies(n, "changes-"+strconv.FormatBool(processes)+strconv.Itoa(n))
		requireWindowBound(t, h, r, policies, 0, processes)
	}
}
