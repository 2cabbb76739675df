package limittest

import (
	"math/big"
	"slices"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A modelLease is a Take with a Lease that has not ended.
type modelLease struct {
	id          int
	cost        int64
	tokens      int64 // that return at its end; 0 after it is settled
	settled     bool
	taken, ends time.Duration
}

// Lease takes a cost at a time until it is settled, or until its lease ends. The caller chooses the
// identifier.
func (m *Model) Lease(at time.Duration, cost int64, lease time.Duration, id int) limit.Decision {
	m.refill(at)
	if len(m.leases) >= limit.MaxLeases {
		d := m.Clone().Consume(at, cost)
		if d.Allowed {
			d = m.Consume(at, 0)
			d.Allowed = false
		}
		d.RetryAfter = max(d.RetryAfter, m.leases[0].ends-m.at)
		return d
	}
	d := m.Consume(at, cost)
	if d.Allowed && cost > 0 {
		m.leases = append(m.leases, modelLease{id, cost, cost, false, m.at, m.at + lease})
		slices.SortStableFunc(m.leases, func(a, b modelLease) int { return int(a.ends - b.ends) })
	}
	return d
}

// Settle replaces at a time what a lease took by what was used.
func (m *Model) Settle(at time.Duration, id int, used int64) {
	m.refill(at)
	i := slices.IndexFunc(m.leases, func(l modelLease) bool { return l.id == id })
	if i < 0 {
		m.Charge(at, used)
		return
	}
	l := &m.leases[i]
	switch {
	case l.settled:
	case used > l.cost:
		m.Charge(at, used-l.cost)
	case l.tokens > 0:
		m.returnAtMost(rat(l.cost-used), l)
	}
	l.tokens, l.settled = 0, true
}

// returnAtMost returns tokens of a lease, but none that have returned since it was taken.
func (m *Model) returnAtMost(tokens *big.Rat, l *modelLease) {
	left := new(big.Rat).Sub(rat(l.cost), new(big.Rat).Mul(m.rate(), rat(int64(m.at-l.taken))))
	if left.Cmp(tokens) > 0 {
		left = tokens
	}
	if left.Sign() > 0 {
		m.tokens.Add(m.tokens, left)
	}
	if full := rat(m.policy.Capacity); m.tokens.Cmp(full) > 0 {
		m.tokens = full
	}
}
