package limittest

import (
	"math/big"
	"slices"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A Model is a token bucket of rational numbers, the reference for limiters. It is slow and
// simple. It is not safe for concurrent use.
//
// It undoes and settles a Take as the contract defines it: it changes the cost in its history, and
// counts again from there.
type Model struct {
	policy  limit.Policy
	tokens  *big.Rat
	at      time.Duration // when tokens were counted; it never goes backwards
	leases  []modelLease  // in the order of their ends
	began   modelState    // before the history
	history []modelChange // since the bucket was full, in the order of time
}

// A modelState is what a bucket holds at a time.
type modelState struct {
	tokens *big.Rat
	at     time.Duration
}

// A modelChange is what a call took at a time, negative for what it returned.
type modelChange struct {
	at    time.Duration
	takes *big.Rat
}

// NewModel returns a full bucket. The policy must be valid.
func NewModel(p limit.Policy) *Model {
	return &Model{policy: p, tokens: rat(p.Capacity), began: modelState{tokens: rat(p.Capacity)}}
}

// Consume decides about a cost at a time since an epoch of the caller's choice. A time before
// that of the last call counts as that time.
func (m *Model) Consume(at time.Duration, cost int64) limit.Decision {
	m.refill(at)
	d := limit.Decision{Limit: m.policy.Capacity}
	missing := new(big.Rat).Sub(rat(cost), m.tokens)
	switch {
	case missing.Sign() <= 0, cost == 0:
		d.Allowed = true
		m.take(rat(cost))
	case cost > m.policy.Capacity:
		d.RetryAfter = limit.Never
	default:
		d.RetryAfter = m.wait(missing)
	}
	d.Remaining = max(0, new(big.Int).Quo(m.tokens.Num(), m.tokens.Denom()).Int64())
	d.ResetAfter = m.wait(new(big.Rat).Sub(rat(m.policy.Capacity), m.tokens))
	return d
}

// Reserve decides at a time about a cost that may wait for maxWait. The tokens
// that the bucket does not hold become a deficit.
func (m *Model) Reserve(at time.Duration, cost int64, maxWait time.Duration) limit.Decision {
	d := m.Consume(at, cost)
	switch {
	case d.Allowed, d.RetryAfter == limit.Never:
	case d.RetryAfter <= maxWait:
		m.take(rat(cost))
		d.Allowed, d.Remaining = true, 0
		d.ResetAfter = m.wait(new(big.Rat).Sub(rat(m.policy.Capacity), m.tokens))
	default:
		d.RetryAfter -= maxWait
	}
	return d
}

// Refund returns tokens at a time.
func (m *Model) Refund(at time.Duration, tokens int64) {
	m.refill(at)
	m.take(new(big.Rat).Neg(rat(tokens)))
}

// Undo returns at a time tokens of a call at another: the bucket is then as if that call had taken as
// many less. Of several calls at that time, it is the last one that took them.
func (m *Model) Undo(at, taken time.Duration, tokens int64) {
	m.refill(at)
	for i, c := range slices.Backward(m.history) {
		if c.at == taken && c.takes.Cmp(rat(tokens)) == 0 {
			m.rewrite(i, new(big.Rat).Sub(c.takes, rat(tokens)))
			return
		}
	}
}

// take takes tokens now.
func (m *Model) take(tokens *big.Rat) {
	m.history = append(m.history, modelChange{m.at, tokens})
	m.tokens = m.after(m.tokens, tokens)
}

// after returns what a bucket holds after a change.
func (m *Model) after(tokens, takes *big.Rat) *big.Rat {
	left := new(big.Rat).Sub(tokens, takes)
	if full := rat(m.policy.Capacity); left.Cmp(full) > 0 {
		return full
	}
	return left
}

// rewrite changes what a call of the history took, and counts again.
func (m *Model) rewrite(index int, takes *big.Rat) {
	m.history[index].takes = takes
	s := m.began
	for _, c := range m.history {
		s = modelState{m.after(m.refilled(s, c.at), c.takes), c.at}
	}
	m.tokens = m.refilled(s, m.at)
}

// ConsumeKeeping decides at a time about a cost that must leave keep tokens.
func (m *Model) ConsumeKeeping(at time.Duration, cost, keep int64) limit.Decision {
	if cost > m.policy.Capacity || keep > m.policy.Capacity-cost {
		d := m.Consume(at, 0)
		d.Allowed, d.RetryAfter = false, limit.Never
		return d
	}
	if d := m.Clone().Consume(at, cost+keep); !d.Allowed {
		m.refill(at)
		return d
	}
	return m.Consume(at, cost)
}

// ConsumeUpTo takes as many whole tokens as the bucket holds, but at most most of them.
func (m *Model) ConsumeUpTo(at time.Duration, most int64) (granted int64, d limit.Decision) {
	holds := m.Consume(at, 0).Remaining
	granted = min(holds, most)
	if granted == 0 {
		return 0, m.Consume(at, min(most, 1))
	}
	return granted, m.Consume(at, granted)
}

// Charge takes cost, even if the bucket holds less, up to the largest deficit.
func (m *Model) Charge(at time.Duration, cost int64) {
	m.refill(at)
	perToken := rat(adapter.UnitsOf(m.policy).PerToken())
	least := new(big.Rat).Sub(rat(m.policy.Capacity), new(big.Rat).Quo(rat(adapter.MaxDeficit), perToken))
	takes, most := rat(cost), new(big.Rat).Sub(m.tokens, least)
	if takes.Cmp(most) > 0 {
		takes = most
	}
	m.take(takes)
}

// SetPolicy changes the policy at a time. The bucket is missing as many tokens as before, rounded up
// to the smallest part of a token that returns in whole microseconds.
func (m *Model) SetPolicy(at time.Duration, p limit.Policy) {
	m.refill(at)
	if adapter.UnitsOf(p) == adapter.UnitsOf(m.policy) {
		return
	}
	missing := new(big.Rat).Sub(rat(m.policy.Capacity), m.tokens)
	m.policy = p
	perMicro := new(big.Rat).Mul(m.rate(), rat(int64(time.Microsecond)))
	parts := missing.Mul(missing, new(big.Rat).SetInt(perMicro.Denom()))
	missing = new(big.Rat).SetFrac(ceil(parts), perMicro.Denom())
	m.tokens = missing.Sub(rat(p.Capacity), missing)
	m.forget()
}

// forget begins a new history, in which no earlier call returns anything.
func (m *Model) forget() {
	m.began, m.history = modelState{m.tokens, m.at}, nil
	for i := range m.leases {
		m.leases[i].index = -1
	}
}

// Clone returns a copy.
func (m *Model) Clone() *Model {
	c := *m
	c.leases, c.history = slices.Clone(m.leases), slices.Clone(m.history)
	return &c
}

// refill applies the leases that have ended, and adds the tokens that have returned. In a full bucket,
// nothing is missing that an earlier call took.
func (m *Model) refill(at time.Duration) {
	for i := slices.IndexFunc(m.leases, modelLease.isOpen); i >= 0 && m.leases[i].ends <= at; i = slices.IndexFunc(m.leases, modelLease.isOpen) {
		first := &m.leases[i]
		first.settled = true
		m.pass(max(first.ends, m.at))
		if first.index >= 0 {
			m.rewrite(first.index, new(big.Rat))
		}
	}
	m.pass(at)
	m.leases = slices.DeleteFunc(m.leases, func(l modelLease) bool { return l.ends <= m.at })
	if m.tokens.Cmp(rat(m.policy.Capacity)) == 0 {
		m.forget()
	}
}

func (m *Model) pass(to time.Duration) {
	if to > m.at {
		m.tokens, m.at = m.refilled(modelState{m.tokens, m.at}, to), to
	}
}

// refilled returns what a bucket in a state holds at a later time.
func (m *Model) refilled(s modelState, to time.Duration) *big.Rat {
	gained := new(big.Rat).Mul(m.rate(), rat(int64(to-s.at)))
	return m.after(s.tokens, gained.Neg(gained))
}

// rate returns the tokens that return per nanosecond.
func (m *Model) rate() *big.Rat {
	per := m.policy.Per
	if per == 0 {
		per = time.Second
	}
	return big.NewRat(m.policy.Refill, int64(per))
}

// wait returns how long tokens take to return, rounded up to microseconds.
func (m *Model) wait(tokens *big.Rat) time.Duration {
	nanos := new(big.Rat).Quo(tokens, m.rate())
	micros := nanos.Quo(nanos, rat(int64(time.Microsecond)))
	return time.Duration(ceil(micros).Int64()) * time.Microsecond
}

// ceil rounds a number that is not negative up.
func ceil(r *big.Rat) *big.Int {
	whole, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	return whole
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }
