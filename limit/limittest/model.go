package limittest

import (
	"math/big"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A Model is a token bucket of rational numbers, the reference for limiters. It is slow and
// simple. It is not safe for concurrent use.
type Model struct {
	policy limit.Policy
	tokens *big.Rat
	at     time.Duration // when tokens were counted; it never goes backwards
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

func (m *Model) refill(at time.Duration) {
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
	whole, rest := new(big.Int).QuoRem(micros.Num(), micros.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		whole.Add(whole, big.NewInt(1))
	}
	return time.Duration(whole.Int64()) * time.Microsecond
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }
