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

func (r *randomCalls) cooldownPolicy(name string) limit.CooldownPolicy {
	w := r.windowPolicy(name, 60)
	return limit.CooldownPolicy{Name: name, Max: w.Max, Window: w.Window, Penalty: time.Duration(1+r.rng.Int64N(2*w.Window.Microseconds())) * time.Microsecond}
}

// cooldownPolicyChanges calls cooldowns of one name with different numbers, as during a rolling
// deployment. It checks every interval, and that all of them observe every penalty until its end.
func cooldownPolicyChanges(t *testing.T, h CooldownHarness) {
	if h.Rewind == nil {
		t.Skip("the cooldowns share no store")
	}
	r := &randomCalls{rng: rand.New(rand.NewPCG(31, 32))}
	for n := range rounds(h.Rounds) {
		var policies []limit.CooldownPolicy
		var windows []limit.WindowPolicy
		var cooldowns []limit.Limiter
		for range 2 + r.rng.IntN(2) {
			p := r.cooldownPolicy("changes-" + strconv.Itoa(n))
			policies, cooldowns = append(policies, p), append(cooldowns, h.New(p, nil))
			windows = append(windows, limit.WindowPolicy{Max: p.Max, Window: p.Window})
		}
		var grants grantLog
		var at, penaltyEnds time.Duration
		for range 150 {
			n := r.rng.IntN(len(policies))
			cost := consume(t, cooldowns[n], key("ann"), 0).Remaining
			if r.rng.IntN(8) == 0 {
				cost = 1 + r.rng.Int64N(policies[n].Max)
			}
			d := consume(t, cooldowns[n], key("ann"), cost)
			switch {
			case d.Allowed && cost > 0:
				require.GreaterOrEqual(t, at, penaltyEnds, "allowed during a penalty: %+v", policies)
				grants.add(at, cost)
			case d.Reason == limit.BurstExceeded:
				require.GreaterOrEqual(t, at, penaltyEnds, "a penalty starts during another: %+v", policies)
				require.GreaterOrEqual(t, d.RetryAfter, policies[n].Penalty)
				penaltyEnds = at + d.RetryAfter
			case d.Reason == limit.InCooldown:
				require.GreaterOrEqual(t, d.RetryAfter, penaltyEnds-at, "the penalty of another policy: %+v", policies)
			}
			pause := r.sleep(policies[r.rng.IntN(len(policies))].Window)
			h.Sleep(pause)
			at += pause
		}
		grants.requireBound(t, windows, 0)
	}
}

// cooldownCountAfterChange counts calls that a policy with a larger maximum has admitted.
func cooldownCountAfterChange(t *testing.T, h CooldownHarness) {
	policy := limit.CooldownPolicy{Name: "count", Max: 8, Window: time.Second, Penalty: time.Second}
	larger := h.New(policy, nil)
	policy.Max = 3
	counter, ok := h.New(policy, nil).(interface {
		limit.Limiter
		Count(ctx context.Context, key limit.Key) (int64, error)
	})
	if h.Rewind == nil || !ok {
		t.Skip("the cooldowns share no store, or do not count")
	}
	for _, want := range []int64{1, 7, 8} {
		n, err := counter.Count(context.Background(), key("ann"))
		require.NoError(t, err)
		require.True(t, consume(t, larger, key("ann"), want-n).Allowed)
		n, err = counter.Count(context.Background(), key("ann"))
		require.NoError(t, err)
		require.Equal(t, want, n, "the calls of the window, whatever is the maximum")
	}
	require.Equal(t, limit.BurstExceeded, consume(t, counter, key("ann"), 1).Reason)
	h.Sleep(time.Second)
	n, err := counter.Count(context.Background(), key("ann"))
	require.NoError(t, err)
	require.Zero(t, n)
}

// cooldownStepBack moves the clock back by an hour during a penalty, which then lasts at most its
// length again.
func cooldownStepBack(t *testing.T, h CooldownHarness) {
	if h.Rewind == nil {
		t.Skip("the cooldowns' clock never goes backwards")
	}
	c := h.New(limit.CooldownPolicy{Name: "back", Max: 2, Window: time.Second, Penalty: time.Minute}, nil)
	consume(t, c, key("ann"), 2)
	assert.Equal(t, time.Minute, consume(t, c, key("ann"), 1).RetryAfter)
	h.Sleep(10 * time.Second)
	h.Rewind(time.Hour)
	assert.Equal(t, limit.Decision{Limit: 2, RetryAfter: time.Minute, ResetAfter: time.Minute, Reason: limit.InCooldown}, consume(t, c, key("ann"), 1))
	h.Sleep(time.Minute - time.Microsecond)
	assert.Equal(t, time.Microsecond, consume(t, c, key("ann"), 1).RetryAfter, "a denied call stores the step")
	h.Sleep(time.Microsecond)
	assert.True(t, consume(t, c, key("ann"), 2).Allowed)
	h.Rewind(time.Hour)
	assert.EqualValues(t, 0, consume(t, c, key("ann"), 0).Remaining, "a step returns no calls")
	h.Sleep(time.Second)
	assert.True(t, consume(t, c, key("ann"), 2).Allowed, "a call that reads stores the step")
}

// cooldownRandomSteps checks that no step creates calls or lets a penalty last longer than its length
// again.
func cooldownRandomSteps(t *testing.T, h CooldownHarness) {
	if h.Rewind == nil {
		t.Skip("the cooldowns' clock never goes backwards")
	}
	r := &randomCalls{rng: rand.New(rand.NewPCG(33, 34))}
	for n := range rounds(h.Rounds) {
		p := r.cooldownPolicy("steps-" + strconv.Itoa(n))
		c := h.New(p, nil)
		var grants grantLog
		var at time.Duration
		longest := max(p.Window, p.Penalty)
		for range 80 {
			cost := 1 + r.rng.Int64N(p.Max)
			d := consume(t, c, key("ann"), cost)
			if d.Allowed {
				grants.add(at, cost)
			}
			require.LessOrEqual(t, d.RetryAfter, longest, "%+v", p)
			pause := r.sleep(longest)
			h.Sleep(pause)
			at += pause
			if r.rng.IntN(6) == 0 {
				h.Rewind(time.Duration(r.rng.Int64N(1<<uint(1+r.rng.IntN(40)))) * time.Microsecond)
			}
		}
		grants.requireBound(t, []limit.WindowPolicy{{Max: p.Max, Window: p.Window}}, 0)
	}
}
