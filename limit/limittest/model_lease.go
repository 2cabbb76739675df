package limittest

import (
	"slices"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A modelLease is a Take with a Lease that has not ended.
type modelLease struct {
	id      int
	cost    int64
	index   int  // in the history; -1 if nothing of it returns
	settled bool // it is known until its end
	ends    time.Duration
}

func (l modelLease) isOpen() bool { return !l.settled }

// Lease takes a cost at a time until it is settled, or until its lease ends. The caller chooses the
// identifier.
func (m *Model) Lease(at time.Duration, cost int64, lease time.Duration, id int) limit.Decision {
	m.refill(at)
	open := 0
	for _, l := range m.leases {
		if l.isOpen() {
			open++
		}
	}
	if open >= adapter.MaxLeases {
		d := m.Clone().Consume(at, cost)
		if d.Allowed {
			d = m.Consume(at, 0)
			d.Allowed = false
		}
		first := m.leases[slices.IndexFunc(m.leases, modelLease.isOpen)]
		d.RetryAfter = max(d.RetryAfter, first.ends-m.at)
		return d
	}
	d := m.Consume(at, cost)
	if d.Allowed && cost > 0 {
		m.leases = append(m.leases, modelLease{id, cost, len(m.history) - 1, false, m.at + lease})
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
	case l.index >= 0:
		m.rewrite(l.index, rat(used))
	}
	l.settled = true
}
