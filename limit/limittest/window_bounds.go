package limittest

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// A randomCalls value chooses random policies, costs and times.
type randomCalls struct{ rng *rand.Rand }

func (r *randomCalls) windowPolicy(name string, most int64) limit.WindowPolicy {
	return limit.WindowPolicy{
		Name:   name,
		Max:    1 + r.rng.Int64N(1+r.rng.Int64N(most)),
		Window: time.Duration(1+r.rng.Int64N(1<<uint(r.rng.IntN(15)))) * time.Millisecond,
	}
}

// cost returns a small cost half of the time, and sometimes one above the maximum.
func (r *randomCalls) cost(maximum int64) int64 {
	if r.rng.IntN(2) == 0 {
		return r.rng.Int64N(min(maximum, 3) + 1)
	}
	return r.rng.Int64N(maximum + maximum/4 + 2)
}

func (r *randomCalls) sleep(window time.Duration) time.Duration {
	if r.rng.IntN(3) == 0 {
		return 0
	}
	return time.Duration(r.rng.Int64N(1+r.rng.Int64N(window.Microseconds()))) * time.Microsecond
}

// take consumes as much as a limiter grants, or a part of it, and returns how much that is.
func (r *randomCalls) take(t testing.TB, l limit.Limiter, maximum int64) int64 {
	t.Helper()
	cost := consume(t, l, key("ann"), 0).Remaining
	if r.rng.IntN(2) == 0 {
		cost = 1 + r.rng.Int64N(maximum)
	}
	if consume(t, l, key("ann"), cost).Allowed {
		return cost
	}
	return 0
}

// grant consumes or reserves, and returns how much was granted, and after which time it can be
// spent. Sometimes it charges before.
func (r *randomCalls) grant(t testing.TB, l limit.Limiter, maximum int64, longest time.Duration) (tokens int64, wait time.Duration) {
	t.Helper()
	if r.rng.IntN(12) == 0 && can(l, limit.Take{Mode: mode.Charging}) {
		require.NoError(t, limit.Charge(t.Context(), l, key("ann"), r.rng.Int64N(2*maximum+1)))
	}
	if r.rng.IntN(3) > 0 || !can(l, limit.Take{MaxWait: longest}) {
		return r.take(t, l, maximum), 0
	}
	tokens = 1 + r.rng.Int64N(maximum)
	d, err := limit.Reserve(t.Context(), l, key("ann"), tokens, time.Duration(r.rng.Int64N(int64(longest)+1)))
	require.NoError(t, err)
	if !d.Allowed {
		return 0, 0
	}
	return tokens, d.RetryAfter
}

// withPolicies returns a function that returns a limiter with one of several policies of one name:
// that of a process, or one limiter, whose policy it changes.
func (h WindowHarness[P]) withPolicies(t testing.TB, policies []P, processes bool) func(n int) adapter.Resetter {
	t.Helper()
	if processes {
		if !h.Shared {
			t.Skip("the limiters share no store")
		}
		var limiters []adapter.Resetter
		for _, p := range policies {
			limiters = append(limiters, h.New(p))
		}
		return func(n int) adapter.Resetter { return limiters[n] }
	}
	l, current := h.New(policies[0]), 0
	setter, ok := l.(limit.PolicySetter[P])
	if !ok {
		t.Skip("the policy cannot change")
	}
	return func(n int) adapter.Resetter {
		if n != current {
			require.NoError(t, setter.SetPolicy(policies[n]))
		}
		current = n
		return l
	}
}

// A grantLog is what limiters have granted to one key.
type grantLog struct {
	at     []time.Duration // when it can be spent, on a clock that never steps
	tokens []int64
	steps  []int64 // steps forward of the limiters' clock until then
	step   int64
}

func (l *grantLog) add(at time.Duration, tokens int64) {
	if tokens == 0 {
		return
	}
	i := len(l.at) // undone and charged tokens let calls overtake reservations
	for i > 0 && l.at[i-1] > at {
		i--
	}
	l.at, l.tokens, l.steps = slices.Insert(l.at, i, at), slices.Insert(l.tokens, i, tokens), slices.Insert(l.steps, i, l.step)
}

// requireBound checks every interval between two grants: it has at most the largest Max, plus the
// largest rate times its length, which is rounded up to the unit, plus the largest Max for every
// step of the clock.
func (l *grantLog) requireBound(t *testing.T, policies []limit.WindowPolicy, unit time.Duration) {
	t.Helper()
	var most int64
	rate := new(big.Rat) // tokens per microsecond
	for _, p := range policies {
		most = max(most, p.Max)
		if r := big.NewRat(p.Max, p.Window.Microseconds()); r.Cmp(rate) > 0 {
			rate = r
		}
	}
	for first := range l.at {
		granted := int64(0)
		for last := first; last < len(l.at); last++ {
			granted += l.tokens[last]
			length := l.at[last] - l.at[first]
			if unit > 0 {
				length = (length + unit - 1) / unit * unit
			}
			excess := rat(granted - most*(1+l.steps[last]-l.steps[first]))
			if excess.Sign() <= 0 {
				continue
			}
			returned := new(big.Rat).Mul(rate, rat(length.Microseconds()))
			require.LessOrEqual(t, excess.Cmp(returned), 0, "%d tokens were granted within %v, policies %+v", granted, length, policies)
		}
	}
}

// changingPolicies returns policies of one name. Some have numbers with which the bound is close to
// what is granted.
func (r *randomCalls) changingPolicies(round int, name string) []limit.WindowPolicy {
	if round == 0 {
		return []limit.WindowPolicy{
			{Name: name, Max: 50, Window: 10 * time.Second},
			{Name: name, Max: 1, Window: 200 * time.Millisecond},
		}
	}
	base := r.windowPolicy(name, 60)
	policies := []limit.WindowPolicy{base}
	for range 1 + r.rng.IntN(3) {
		p := base
		switch r.rng.IntN(4) {
		case 0:
			p = r.windowPolicy(name, 60)
		case 1:
			p.Max = 1 + r.rng.Int64N(60)
		default:
			p.Window += time.Duration(r.rng.Int64N(4)) * time.Millisecond
		}
		policies = append(policies, p)
	}
	return policies
}

// requireWindowBound calls limiters of one name and different numbers in random order, and checks
// every interval. They are those of processes, or one whose policy changes.
func requireWindowBound(t *testing.T, h WindowHarness[limit.WindowPolicy], r *randomCalls, policies []limit.WindowPolicy, unit time.Duration, processes bool) {
	t.Helper()
	with := h.withPolicies(t, policies, processes)
	var grants grantLog
	var at time.Duration
	denied := 0
	for range 25 {
		n := r.rng.IntN(len(policies))
		for range 1 + r.rng.IntN(10) {
			if r.rng.IntN(3) == 0 {
				n = r.rng.IntN(len(policies))
			}
			tokens, wait := r.grant(t, with(n), policies[n].Max, 2*policies[n].Window)
			grants.add(at+wait, tokens)
			if tokens == 0 {
				denied++
			}
			pause := r.sleep(policies[r.rng.IntN(len(policies))].Window)
			h.Sleep(pause)
			at += pause
		}
	}
	grants.requireBound(t, policies, unit)
	require.Positive(t, denied, "no call was denied: %+v", policies)
	requireRetryAfter(t, h, with, len(policies), func(n int) int64 { return policies[n].Max })
}

// requireRetryAfter checks that a denied call is allowed after exactly RetryAfter, whatever policy
// has written the record.
func requireRetryAfter[P any](t *testing.T, h WindowHarness[P], with func(n int) adapter.Resetter, policies int, maximum func(n int) int64) {
	t.Helper()
	for n := range policies {
		for _, n := range []int{n, (n + 1) % policies} {
			consume(t, with(n), key("ann"), consume(t, with(n), key("ann"), 0).Remaining)
		}
		if h.Rewind != nil {
			h.Rewind(0) // a limiter may not know what others have taken since it denied a call
		}
		cost := maximum(n)
		d := consume(t, with(n), key("ann"), cost)
		require.False(t, d.Allowed)
		h.Sleep(d.RetryAfter - time.Microsecond)
		require.False(t, consume(t, with(n), key("ann"), cost).Allowed, "allowed before RetryAfter of %v by policy %d", d.RetryAfter, n)
		h.Sleep(time.Microsecond)
		require.True(t, consume(t, with(n), key("ann"), cost).Allowed, "denied after RetryAfter of %v by policy %d", d.RetryAfter, n)
	}
}

// windowClockSteps moves the limiters' clock forward and backwards. A step forward may return the
// tokens of a window. A step backwards creates none, and after the next call, a key has all its
// tokens within a number of windows.
func windowClockSteps(t *testing.T, h WindowHarness[limit.WindowPolicy], windows time.Duration, most int64) {
	if h.Rewind == nil {
		t.Skip("the limiters' clock never goes backwards")
	}
	r := &randomCalls{rng: rand.New(rand.NewPCG(21, 22))}
	for n := range h.rounds() {
		p := r.windowPolicy("steps-"+strconv.Itoa(n), most)
		l := h.New(p)
		var grants grantLog
		var at time.Duration
		for range 60 {
			grants.add(at, r.take(t, l, p.Max))
			pause := r.sleep(p.Window)
			h.Sleep(pause)
			at += pause
			step := time.Duration(r.rng.Int64N(1<<uint(1+r.rng.IntN(40)))) * time.Microsecond
			switch r.rng.IntN(12) {
			case 0:
				h.Sleep(step)
				grants.step++
			case 1:
				h.Rewind(step)
			case 2:
				h.Rewind(step)
				// The limiter detects the step at the next call, even if that only reads.
				if cost := p.Max * r.rng.Int64N(2); consume(t, l, key("ann"), cost).Allowed {
					grants.add(at, cost)
				}
				h.Sleep(windows * p.Window)
				at += windows * p.Window
				require.Equal(t, p.Max, consume(t, l, key("ann"), 0).Remaining, "%+v: the tokens did not return after a step of %v", p, step)
			}
		}
		grants.requireBound(t, []limit.WindowPolicy{p}, time.Millisecond)
	}
}
