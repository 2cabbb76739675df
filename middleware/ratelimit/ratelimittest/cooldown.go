package ratelimittest

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// A CooldownHarness makes cooldowns whose clock a test can move.
type CooldownHarness struct {
	// New returns a cooldown. Those of different names are apart.
	New func(ratelimit.CooldownPolicy, func(ratelimit.Penalty)) ratelimit.Limiter

	// Sleep moves the cooldowns' clock by exactly d. Between two calls of it the clock
	// stands still.
	Sleep func(d time.Duration)
}

// A CooldownCase is one promise of [ratelimit.CooldownPolicy].
type CooldownCase struct {
	Name string
	Run  func(*testing.T, CooldownHarness)
}

// CooldownCases returns what is promised.
func CooldownCases() []CooldownCase {
	return []CooldownCase{
		{"three outcomes", threeOutcomes},
		{"the window is half-open", windowIsHalfOpen},
		{"looking", looking},
		{"equals the model", cooldownEqualsModel},
	}
}

func threeOutcomes(t *testing.T, h CooldownHarness) {
	var penalties []ratelimit.Penalty
	policy := ratelimit.CooldownPolicy{Name: "burst", Max: 3, Window: time.Minute, Penalty: 5 * time.Minute}
	c := h.New(policy, func(p ratelimit.Penalty) { penalties = append(penalties, p) })
	for n := range 3 {
		d := hit(t, c, key("ann"), 1)
		assert.Equal(t, ratelimit.Decision{Allowed: true, Limit: 3, Remaining: int64(2 - n), ResetAfter: time.Minute}, d)
	}
	five := 5 * time.Minute
	assert.Equal(t, ratelimit.Decision{Limit: 3, RetryAfter: five, ResetAfter: five, Reason: ratelimit.BurstExceeded}, hit(t, c, key("ann"), 1))
	h.Sleep(time.Minute)
	assert.Equal(t, ratelimit.Decision{Limit: 3, RetryAfter: five - time.Minute, ResetAfter: five - time.Minute, Reason: ratelimit.InCooldown}, hit(t, c, key("ann"), 1), "it does not grow")
	assert.Equal(t, []ratelimit.Penalty{{Policy: policy, Key: key("ann"), Count: 4, RetryAfter: five}}, penalties, "once")
	assert.True(t, hit(t, c, key("bob"), 1).Allowed)
	h.Sleep(4*time.Minute - time.Microsecond)
	assert.False(t, hit(t, c, key("ann"), 1).Allowed)
	h.Sleep(time.Microsecond)
	assert.True(t, hit(t, c, key("ann"), 3).Allowed, "everything is as new")
	assert.Equal(t, ratelimit.Never, hit(t, c, key("eve"), 4).RetryAfter)
	assert.True(t, hit(t, c, key("eve"), 3).Allowed, "what can never be is not punished")
}

func looking(t *testing.T, h CooldownHarness) {
	policy := ratelimit.CooldownPolicy{Name: "looking", Max: 2, Window: time.Minute, Penalty: time.Minute}
	c := h.New(policy, nil)
	full := ratelimit.Decision{Allowed: true, Limit: 2, Remaining: 2}
	assert.Equal(t, full, hit(t, c, key("ann"), 0))
	hit(t, c, key("ann"), 1)
	assert.Equal(t, ratelimit.Decision{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: time.Minute}, hit(t, c, key("ann"), 0))
	hit(t, c, key("ann"), 2)
	assert.Equal(t, ratelimit.Decision{Allowed: true, Limit: 2, ResetAfter: time.Minute}, hit(t, c, key("ann"), 0), "in a cooldown nothing remains")
	h.Sleep(time.Minute)
	assert.Equal(t, full, hit(t, c, key("ann"), 0))
	_, err := c.Consume(context.Background(), key("ann"), -1)
	assert.Error(t, err)
}

// windowIsHalfOpen: what came exactly a window ago does not count.
func windowIsHalfOpen(t *testing.T, h CooldownHarness) {
	c := h.New(ratelimit.CooldownPolicy{Name: "half-open", Max: 1, Window: time.Second, Penalty: time.Microsecond}, nil)
	assert.True(t, hit(t, c, key("ann"), 1).Allowed)
	h.Sleep(time.Second)
	assert.True(t, hit(t, c, key("ann"), 1).Allowed)
	h.Sleep(time.Second - time.Microsecond)
	d := hit(t, c, key("ann"), 1)
	assert.False(t, d.Allowed)
	assert.Equal(t, time.Microsecond, d.RetryAfter)
}

// cooldownEqualsModel compares with a list of everything that was ever admitted, and
// holds every RetryAfter to its word.
func cooldownEqualsModel(t *testing.T, h CooldownHarness) {
	rng := rand.New(rand.NewPCG(5, 6))
	for n := range 60 {
		p := ratelimit.CooldownPolicy{
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
			d := hit(t, c, key("ann"), cost)
			require.Equal(t, want, d.Allowed, "%+v: policy %d, step %d, cost %d", p, n, step, cost)
			require.True(t, promised < 0 || d.Allowed, "%+v: a promise was broken", p)
			promised = -1
			switch {
			case d.Allowed:
				for range cost {
					admitted = append(admitted, now)
				}
			case cost > p.Max:
				require.Equal(t, ratelimit.Never, d.RetryAfter)
			case d.Reason == ratelimit.BurstExceeded:
				require.GreaterOrEqual(t, now, until, "a penalty starts while one lasts")
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

func hit(t testing.TB, l ratelimit.Limiter, key ratelimit.Key, cost int64) ratelimit.Decision {
	t.Helper()
	d, err := l.Consume(context.Background(), key, cost)
	require.NoError(t, err)
	return d
}
