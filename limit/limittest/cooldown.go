package limittest

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
)

// A CooldownHarness creates cooldowns whose clock a case can move.
type CooldownHarness struct {
	// New returns a cooldown. Cooldowns of different names must not influence each other.
	New func(limit.CooldownPolicy, func(limit.Penalty)) limit.Limiter

	// Sleep moves the cooldowns' clock forward by exactly d. Between two calls of Sleep, the
	// clock must not move.
	Sleep func(d time.Duration)

	// Rewind moves the clock backwards by d, as an administrator might, and makes the cooldowns forget
	// what they know of the store. It is nil if their clock cannot go backwards; then cases that
	// need a shared store do nothing, too.
	Rewind func(d time.Duration)

	// Rounds is how many policies a case with random ones tries; 30 if 0.
	Rounds int
}

// A CooldownCase is one rule of [limit.CooldownPolicy].
type CooldownCase struct {
	Name string
	Run  func(*testing.T, CooldownHarness)
}

// CooldownCases returns the rules.
func CooldownCases() []CooldownCase {
	return []CooldownCase{
		{"three outcomes", threeOutcomes},
		{"the window is half-open", windowIsHalfOpen},
		{"cost of 0", cooldownZeroCost},
		{"equals the model", cooldownEqualsModel},
		{"block", func(t *testing.T, h CooldownHarness) {
			policy := limit.CooldownPolicy{Name: "block", Max: 3, Window: time.Second, Penalty: time.Second}
			if l, ok := h.New(policy, nil).(limit.Blocker); ok {
				requireBlocks(t, l, 3, h.Sleep)
			}
		}},
		{"the policy changes", cooldownPolicyChanges},
		{"the count after a change", cooldownCountAfterChange},
		{"the clock goes back during a penalty", cooldownStepBack},
		{"the clock goes back at random", cooldownRandomSteps},
	}
}

func threeOutcomes(t *testing.T, h CooldownHarness) {
	var penalties []limit.Penalty
	policy := limit.CooldownPolicy{Name: "burst", Max: 3, Window: time.Minute, Penalty: 5 * time.Minute}
	c := h.New(policy, func(p limit.Penalty) { penalties = append(penalties, p) })
	for n := range 3 {
		d := consume(t, c, key("ann"), 1)
		assert.Equal(t, limit.Decision{Allowed: true, Limit: 3, Remaining: int64(2 - n), ResetAfter: time.Minute}, d)
	}
	five := 5 * time.Minute
	assert.Equal(t, limit.Decision{Limit: 3, RetryAfter: five, ResetAfter: five, Reason: limit.BurstExceeded}, consume(t, c, key("ann"), 1))
	h.Sleep(time.Minute)
	assert.Equal(t, limit.Decision{Limit: 3, RetryAfter: five - time.Minute, ResetAfter: five - time.Minute, Reason: limit.InCooldown}, consume(t, c, key("ann"), 1), "a denied call does not extend the penalty")
	assert.Equal(t, []limit.Penalty{{Policy: policy, Key: key("ann"), Count: 4, RetryAfter: five}}, penalties, "the hook is called once")
	assert.True(t, consume(t, c, key("bob"), 1).Allowed)
	h.Sleep(4*time.Minute - time.Microsecond)
	assert.False(t, consume(t, c, key("ann"), 1).Allowed)
	h.Sleep(time.Microsecond)
	assert.True(t, consume(t, c, key("ann"), 3).Allowed, "the penalty has ended")
	assert.Equal(t, limit.Never, consume(t, c, key("eve"), 4).RetryAfter)
	assert.True(t, consume(t, c, key("eve"), 3).Allowed, "a cost above Max starts no penalty")
}

func cooldownZeroCost(t *testing.T, h CooldownHarness) {
	policy := limit.CooldownPolicy{Name: "zero", Max: 2, Window: time.Minute, Penalty: time.Minute}
	c := h.New(policy, nil)
	full := limit.Decision{Allowed: true, Limit: 2, Remaining: 2}
	assert.Equal(t, full, consume(t, c, key("ann"), 0))
	consume(t, c, key("ann"), 1)
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: time.Minute}, consume(t, c, key("ann"), 0))
	consume(t, c, key("ann"), 2)
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 2, ResetAfter: time.Minute}, consume(t, c, key("ann"), 0), "during a penalty nothing remains")
	h.Sleep(time.Minute)
	assert.Equal(t, full, consume(t, c, key("ann"), 0))
	_, err := limit.Consume(context.Background(), c, key("ann"), -1)
	assert.Error(t, err)
}

// windowIsHalfOpen checks that a call exactly one window ago does not count.
func windowIsHalfOpen(t *testing.T, h CooldownHarness) {
	c := h.New(limit.CooldownPolicy{Name: "half-open", Max: 1, Window: time.Second, Penalty: time.Microsecond}, nil)
	assert.True(t, consume(t, c, key("ann"), 1).Allowed)
	h.Sleep(time.Second)
	assert.True(t, consume(t, c, key("ann"), 1).Allowed)
	h.Sleep(time.Second - time.Microsecond)
	d := consume(t, c, key("ann"), 1)
	assert.False(t, d.Allowed)
	assert.Equal(t, time.Microsecond, d.RetryAfter)
}

// cooldownEqualsModel compares decisions with a list of all admitted calls, and checks that a
// call is admitted after its RetryAfter.
func cooldownEqualsModel(t *testing.T, h CooldownHarness) {
	rng := rand.New(rand.NewPCG(5, 6))
	for n := range 2 * rounds(h.Rounds) {
		p := limit.CooldownPolicy{
			Name:    "model-" + strconv.Itoa(n),
			Max:     1 + rng.Int64N(8),
			Window:  time.Duration(1+rng.Int64N(1000)) * time.Microsecond,
			Penalty: time.Duration(1+rng.Int64N(2000)) * time.Microsecond,
		}
		c := h.New(p, nil)
		var admitted []time.Duration // since the start
		var until, now time.Duration
		promised := time.Duration(-1)
		cost := int64(0)
		for step := range 200 {
			if promised < 0 {
				cost = 1 + rng.Int64N(p.Max+1)
			}
			inWindow := int64(0)
			for _, at := range admitted {
				if at > now-p.Window {
					inWindow++
				}
			}
			want := now >= until && inWindow+cost <= p.Max
			d := consume(t, c, key("ann"), cost)
			require.Equal(t, want, d.Allowed, "%+v: policy %d, step %d, cost %d", p, n, step, cost)
			require.True(t, promised < 0 || d.Allowed, "%+v: denied after RetryAfter", p)
			promised = -1
			switch {
			case d.Allowed:
				for range cost {
					admitted = append(admitted, now)
				}
			case cost > p.Max:
				require.Equal(t, limit.Never, d.RetryAfter)
			case d.Reason == limit.BurstExceeded:
				require.GreaterOrEqual(t, now, until, "a penalty starts during another")
				require.GreaterOrEqual(t, d.RetryAfter, p.Penalty)
				until = now + d.RetryAfter
			}
			pause := time.Duration(rng.Int64N(600)) * time.Microsecond
			if !d.Allowed && cost <= p.Max && rng.IntN(2) == 0 {
				pause, promised = d.RetryAfter, d.RetryAfter
			}
			h.Sleep(pause)
			now += pause
		}
	}
}

func consume(t testing.TB, l limit.Limiter, key limit.Key, cost int64) limit.Decision {
	t.Helper()
	d, err := limit.Consume(context.Background(), l, key, cost)
	require.NoError(t, err)
	return d
}
