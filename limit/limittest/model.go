package limittest

import (
	"math/big"
	"slices"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A Model is a token bucket of rational numbers, the reference for limiters. It is slow and
// simple. It is not safe for concurrent use.
type Model struct {
	policy limit.Policy
	tokens *big.Rat
	at     time.Duration // when tokens were counted; it never goes backwards
	leases []modelLease  // in the order of their ends
}

// NewModel returns a full bucket. The policy must be valid.
func NewModel(p limit.Policy) *Model {
	return &Model{policy: p, tokens: new(big.Rat).SetInt64(p.Capacity)}
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
		m.tokens = missing.Neg(missing)
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
		m.tokens.Sub(m.tokens, rat(cost))
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
	m.tokens.Add(m.tokens, rat(tokens))
	if full := rat(m.policy.Capacity); m.tokens.Cmp(full) > 0 {
		m.tokens = full
	}
}

// Undo returns at a time tokens that the bucket held at another, except those that have returned
// since: the tokens that return are those first.
func (m *Model) Undo(at, held time.Duration, tokens int64) {
	m.refill(at)
	left := new(big.Rat).Sub(rat(tokens), new(big.Rat).Mul(m.rate(), rat(int64(max(m.at-held, 0)))))
	if left.Sign() > 0 {
		m.tokens.Add(m.tokens, left)
	}
	if full := rat(m.policy.Capacity); m.tokens.Cmp(full) > 0 {
		m.tokens = full
	}
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
	perToken := rat(m.policy.Units().PerToken())
	m.tokens = new(big.Rat).Sub(m.tokensAt(at), rat(cost))
	least := new(big.Rat).Sub(rat(m.policy.Capacity), new(big.Rat).Quo(rat(limit.MaxDeficit), perToken))
	if m.tokens.Cmp(least) < 0 {
		m.tokens = least
	}
}

// SetPolicy changes the policy at a time. The bucket is missing as many tokens as before, rounded up
// to the smallest part of a token that returns in whole microseconds.
func (m *Model) SetPolicy(at time.Duration, p limit.Policy) {
	missing := new(big.Rat).Sub(rat(m.policy.Capacity), m.tokensAt(at))
	m.policy = p
	perMicro := new(big.Rat).Mul(m.rate(), rat(int64(time.Microsecond)))
	parts := missing.Mul(missing, new(big.Rat).SetInt(perMicro.Denom()))
	missing = new(big.Rat).SetFrac(ceil(parts), perMicro.Denom())
	m.tokens = missing.Sub(rat(p.Capacity), missing)
	for i := range m.leases {
		m.leases[i].tokens = 0
	}
}

func (m *Model) tokensAt(at time.Duration) *big.Rat {
	m.refill(at)
	return m.tokens
}

// Clone returns a copy.
func (m *Model) Clone() *Model {
	return &Model{policy: m.policy, tokens: new(big.Rat).Set(m.tokens), at: m.at, leases: slices.Clone(m.leases)}
}

// refill applies the leases that have ended, and adds the tokens that have returned.
func (m *Model) refill(at time.Duration) {
	for len(m.leases) > 0 && m.leases[0].ends <= at {
		first := m.leases[0]
		m.leases = m.leases[1:]
		m.Undo(max(first.ends, m.at), first.taken, first.tokens)
	}
	if at <= m.at {
		return
	}
	gained := new(big.Rat).Mul(m.rate(), rat(int64(at-m.at)))
	m.tokens.Add(m.tokens, gained)
	if full := rat(m.policy.Capacity); m.tokens.Cmp(full) > 0 {
		m.tokens = full
	}
	m.at = at
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
