package limittest

import (
	"context"
	"math/big"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/mode"
)

// PolicyChanges changes the policies of limiters at random moments, for a number of random
// groups of policies. It does nothing if the limiters are no [limit.PolicySetter].
//
// One limiter, whose policy changes, must decide as a [Model] does. If Harness.Shared is false,
// its buckets follow the new policy from the change on. Otherwise a bucket follows the policy of
// the call that changed it last; a denied call counts as a change if its policy refills faster.
//
// Several limiters with different policies, or one if Harness.Shared is false, must not grant
// more in any interval than the largest capacity and what the largest refill returns in it,
// even if the clock goes backwards (see Harness.Rewind).
func PolicyChanges(t *testing.T, h Harness, groups int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(5, 6))
	for n := range groups {
		name := "changes-" + strconv.Itoa(n)
		if _, ok := h.New(randomPolicy(rng, name+"-probe")).(limit.PolicySetter[limit.Policy]); !ok {
			return
		}
		changesEqualModel(t, h, rng, randomPolicies(rng, name+"-one"))
		changesKeepBound(t, h, rng, randomPolicies(rng, name+"-several"))
	}
}

// A storedModel is a Model whose state is written under one policy and read under another.
type storedModel struct {
	stored *Model
	policy limit.Policy
	since  *Model // the bucket, if it had followed the policy since the change
	shared bool
}

func (m *storedModel) setPolicy(at time.Duration, p limit.Policy) {
	m.policy, m.since = p, m.stored.Clone()
	m.since.SetPolicy(at, p)
	if !m.shared {
		m.stored = m.since.Clone()
	}
}

// read returns the bucket under the policy in effect.
func (m *storedModel) read(at time.Duration) *Model {
	read := m.stored.Clone()
	read.SetPolicy(at, m.policy)
	return read
}

// differs reports whether the bucket was written under other numbers.
func (m *storedModel) differs() bool {
	return m.policy.Capacity != m.stored.policy.Capacity || m.read(m.stored.at).rate().Cmp(m.stored.rate()) != 0
}

// call compares a decision with that of the model, made by f. The call takes tokens if taken.
func (m *storedModel) call(t *testing.T, at time.Duration, got limit.Decision, what string, f func(*Model) limit.Decision) {
	t.Helper()
	read := m.read(at)
	want := f(read)
	switch refill := read.rate().Cmp(m.stored.rate()); {
	case refill < 0 && got != want && !got.Allowed:
		// Nothing has written the bucket since the refill became slower. A limiter may
		// deny by its copy of the bucket, which refills slower than the bucket.
		slow := f(m.since.Clone())
		require.LessOrEqual(t, got.RetryAfter, slow.RetryAfter, "%s at %v", what, at)
		require.GreaterOrEqual(t, got.RetryAfter, want.RetryAfter, "%s at %v", what, at)
	case refill > 0, want.Allowed:
		require.Equal(t, want, got, "%s at %v", what, at)
		m.stored = read
	default:
		require.Equal(t, want, got, "%s at %v", what, at)
	}
}

func changesEqualModel(t *testing.T, h Harness, rng *rand.Rand, policies []limit.Policy) {
	t.Helper()
	ctx, k := context.Background(), limit.Key{"user"}
	l := h.New(policies[0])
	model := &storedModel{stored: NewModel(policies[0]), shared: h.Shared}
	model.setPolicy(0, policies[0])
	at := time.Duration(0)
	for range 100 {
		if rng.IntN(4) == 0 {
			p := policies[rng.IntN(len(policies))]
			require.NoError(t, l.(limit.PolicySetter[limit.Policy]).SetPolicy(p))
			model.setPolicy(at, p)
		}
		got := changedCall(ctx, t, rng, l, k, model, at)
		step := pause(rng, got)
		h.Sleep(step)
		at += step
	}
}

// changedCall makes a random call and compares it with the model.
func changedCall(ctx context.Context, t *testing.T, rng *rand.Rand, l limit.Limiter, k limit.Key, model *storedModel, at time.Duration) (got limit.Decision) {
	t.Helper()
	p := model.policy
	cost := randomCost(rng, p)
	if model.differs() {
		cost = max(1, min(cost, p.Capacity)) // whether other calls write the bucket is not specified
	}
	var err error
	switch rng.IntN(8) {
	case 0:
		if can(l, limit.Take{MaxWait: time.Hour}) {
			maxWait := min(pause(rng, model.read(at).Consume(at, 0)), time.Hour)
			got, err = limit.Reserve(ctx, l, k, cost, maxWait)
			require.NoError(t, err)
			model.call(t, at, got, "Reserve", func(m *Model) limit.Decision { return m.Reserve(at, cost, maxWait) })
		}
	case 1:
		if can(l, limit.Take{Mode: mode.Returning}) {
			require.NoError(t, limit.Refund(ctx, l, k, max(1, cost)))
			model.stored = model.read(at)
			model.stored.Refund(at, max(1, cost))
		}
	case 2:
		charged := model.read(at)
		charged.Charge(at, min(cost, p.Capacity))
		if can(l, limit.Take{Mode: mode.Charging}) && charged.tokens.Cmp(model.read(at).tokens) != 0 {
			require.NoError(t, limit.Charge(ctx, l, k, min(cost, p.Capacity)))
			model.stored = charged
		}
	case 3:
		if can(l, limit.Take{Keep: 1}) {
			keep := rng.Int64N(p.Capacity - min(cost, p.Capacity) + 1)
			got, err = limit.ConsumeKeeping(ctx, l, k, cost, keep)
			require.NoError(t, err)
			model.call(t, at, got, "ConsumeKeeping", func(m *Model) limit.Decision { return m.ConsumeKeeping(at, cost, keep) })
		}
	case 4:
		if can(l, limit.Take{Mode: mode.Partial}) {
			var granted, want int64
			granted, got, err = limit.ConsumeUpTo(ctx, l, k, cost)
			require.NoError(t, err)
			model.call(t, at, got, "ConsumeUpTo", func(m *Model) (d limit.Decision) {
				want, d = m.ConsumeUpTo(at, cost)
				return d
			})
			if got.Allowed {
				require.Equal(t, want, granted, "ConsumeUpTo(%d)", cost)
			}
		}
	default:
		got, err = limit.Consume(ctx, l, k, cost)
		require.NoError(t, err)
		model.call(t, at, got, "Consume", func(m *Model) limit.Decision { return m.Consume(at, cost) })
	}
	return got
}

func changesKeepBound(t *testing.T, h Harness, rng *rand.Rand, policies []limit.Policy) {
	t.Helper()
	limiters := []limit.Limiter{h.New(policies[0])}
	if h.Shared {
		for _, p := range policies[1:] {
			limiters = append(limiters, h.New(p))
		}
	}
	bound := newIntervalBound(policies)
	for range 150 {
		l := limiters[rng.IntN(len(limiters))]
		if rng.IntN(4) == 0 {
			require.NoError(t, l.(limit.PolicySetter[limit.Policy]).SetPolicy(policies[rng.IntN(len(policies))]))
		}
		granted, d := randomGrant(t, rng, l)
		level := bound.grant(granted)
		require.LessOrEqual(t, level.Cmp(bound.capacity), 0,
			"%d tokens were granted with %v, which makes %s in an interval, above its refill: %+v", granted, d, level.FloatString(3), policies)
		step := pause(rng, d)
		h.Sleep(step)
		bound.pass(step)
		if h.Rewind != nil && rng.IntN(12) == 0 {
			h.Rewind(time.Duration(rng.Int64N(1<<uint(1+rng.IntN(36)))) * time.Microsecond)
		}
	}
}

// randomGrant makes a random call, most of which empty the bucket, and returns how many tokens
// it was granted.
func randomGrant(t *testing.T, rng *rand.Rand, l limit.Limiter) (int64, limit.Decision) {
	t.Helper()
	ctx, k := context.Background(), limit.Key{"user"}
	d, err := limit.Consume(ctx, l, k, 0)
	require.NoError(t, err)
	cost := rng.Int64N(d.Limit + 1)
	if rng.IntN(2) == 0 {
		cost = d.Remaining
	}
	if can(l, limit.Take{Mode: mode.Charging}) && rng.IntN(6) == 0 {
		require.NoError(t, limit.Charge(ctx, l, k, cost))
	}
	if can(l, limit.Take{Mode: mode.Partial}) && rng.IntN(3) == 0 {
		granted, d, err := limit.ConsumeUpTo(ctx, l, k, cost)
		require.NoError(t, err)
		return granted, d
	}
	d, err = limit.Consume(ctx, l, k, cost)
	require.NoError(t, err)
	if !d.Allowed {
		cost = 0
	}
	return cost, d
}

// An intervalBound checks the grants in every interval at once: its level is the largest
// difference, over all intervals that end at present, between the tokens granted and those
// refilled. It must not exceed the capacity.
type intervalBound struct {
	level, capacity, rate *big.Rat // tokens, and tokens per nanosecond
}

func newIntervalBound(policies []limit.Policy) *intervalBound {
	b := &intervalBound{new(big.Rat), new(big.Rat), new(big.Rat)}
	for _, p := range policies {
		if c := rat(p.Capacity); c.Cmp(b.capacity) > 0 {
			b.capacity = c
		}
		if r := NewModel(p).rate(); r.Cmp(b.rate) > 0 {
			b.rate = r
		}
	}
	return b
}

func (b *intervalBound) grant(tokens int64) (level *big.Rat) {
	return b.level.Add(b.level, rat(tokens))
}

func (b *intervalBound) pass(d time.Duration) {
	b.level.Sub(b.level, new(big.Rat).Mul(b.rate, rat(int64(d))))
	if b.level.Sign() < 0 {
		b.level = new(big.Rat)
	}
}

// randomPolicies returns two to four policies of one name.
func randomPolicies(rng *rand.Rand, name string) []limit.Policy {
	var policies []limit.Policy
	for count := 2 + rng.IntN(3); len(policies) < count; {
		p := randomPolicy(rng, name)
		if len(policies) > 0 && rng.IntN(2) == 0 { // a small change
			p = policies[0]
			p.Capacity = max(1, p.Capacity*rng.Int64N(40)/20)
			p.Refill = max(1, p.Refill*rng.Int64N(40)/20)
		}
		if changesExactly(append(policies, p)) {
			policies = append(policies, p)
		}
	}
	return policies
}

// changesExactly reports whether every bucket can be counted under every policy, and fills
// within a time that a time.Duration holds many times.
func changesExactly(policies []limit.Policy) bool {
	for _, p := range policies {
		if p.Validate() != nil {
			return false
		}
		for _, other := range policies {
			perMicro := new(big.Rat).Mul(NewModel(other).rate(), rat(int64(time.Microsecond)))
			units := new(big.Int).Mul(perMicro.Denom(), big.NewInt(p.Capacity))
			fills := new(big.Rat).Quo(rat(p.Capacity), NewModel(other).rate())
			if units.BitLen() > 50 || fills.Cmp(rat(int64(30*24*time.Hour))) > 0 {
				return false
			}
		}
	}
	return true
}
