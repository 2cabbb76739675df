package memory

import (
	"cmp"
	"slices"

	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A quotaLease is a Take with a Lease whose end, in microseconds since 1970, has not been applied.
type quotaLease struct {
	receipt limit.Receipt
	length  int64 // in microseconds
	ends    int64
	settled int64 // which settlement of the key it was, from 1: its end returns nothing
}

func (l quotaLease) isOpen() bool { return l.settled == 0 }

func compareEnds(a, b quotaLease) int { return cmp.Compare(a.ends, b.ends) }

// endLeases applies the leases that have ended, to a record that has not advanced since: tokens of a period
// that has ended do not return.
func (q *quotaRules) endLeases(r *quotaCount, now int64) {
	for i, l := range r.leases {
		if l.ends-now > l.length { // the clock went back, which does not extend a lease
			r.leases[i].ends = now + l.length
		}
	}
	for len(r.leases) > 0 && r.leases[0].ends <= now {
		first := r.leases[0]
		r.leases = r.leases[1:]
		if first.isOpen() && first.receipt.Version == q.version {
			q.giveBack(r, now, first.receipt.Tokens, &first.receipt.Stamp)
		}
	}
	if len(r.leases) == 0 {
		r.leases = nil
	}
}

// takeLeased is Take with a Lease and a cost that can be allowed.
func (q *quota) takeLeased(rules *quotaRules, key *limit.Key, take *limit.Take) (d limit.Decision) {
	blocked := q.records.change(key, func(r *quotaCount, now int64) {
		rules.advance(r, now)
		d = rules.lease(r, now, take)
	})
	if blocked > 0 {
		return rules.blockedDecision(blocked, take.Cost)
	}
	return d
}

func (q *quotaRules) lease(r *quotaCount, now int64, take *limit.Take) limit.Decision {
	if r.openLeases() >= adapter.MaxLeases {
		return q.denyLease(r, now, take.Cost)
	}
	d, stamp := q.consume(r, now, take.Cost, 0)
	if !d.Allowed {
		return d
	}
	d.Receipt = limit.Receipt{Tokens: take.Cost, Stamp: stamp, Version: q.version, Lease: 1 + random.N[int64](1<<53-1)}
	length := take.Lease.Microseconds()
	r.leases = append(r.leases, quotaLease{receipt: d.Receipt, length: length, ends: now + length})
	slices.SortStableFunc(r.leases, compareEnds)
	return d
}

// openLeases returns how many leases are not settled.
func (r *quotaCount) openLeases() (open int) {
	for _, l := range r.leases {
		if l.isOpen() {
			open++
		}
	}
	return open
}

// settleLease marks a lease as settled, and forgets the one that was settled first if there are too many.
func (r *quotaCount) settleLease(l *quotaLease) {
	r.settlements++
	l.settled = r.settlements
	if len(r.leases)-r.openLeases() <= adapter.MaxLeases {
		return
	}
	first := slices.MinFunc(r.leases, func(a, b quotaLease) int { return cmp.Compare(uint64(a.settled-1), uint64(b.settled-1)) })
	r.leases = slices.DeleteFunc(r.leases, func(l quotaLease) bool { return l.settled == first.settled })
}

// denyLease returns the denial of a key that has as many leases as it may.
func (q *quotaRules) denyLease(r *quotaCount, now, cost int64) limit.Decision {
	copied := r.clone()
	d, _ := q.consume(&copied, now, cost, 0)
	if d.Allowed {
		d, _ = q.consume(r, now, 0, 0)
		d.Allowed = false
	}
	first := r.leases[slices.IndexFunc(r.leases, quotaLease.isOpen)]
	d.RetryAfter = max(d.RetryAfter, micros(first.ends-now))
	return d
}

// settle replaces what the Take with a receipt took by what it has used.
func (q *quota) settle(rules *quotaRules, key *limit.Key, receipt limit.Receipt, used int64) {
	q.records.change(key, func(r *quotaCount, now int64) {
		rules.advance(r, now)
		i := slices.IndexFunc(r.leases, func(l quotaLease) bool { return l.receipt.Lease == receipt.Lease })
		if i < 0 {
			rules.charge(r, now, used)
			return
		}
		lease := &r.leases[i]
		taken := lease.receipt
		switch {
		case !lease.isOpen():
			return
		case used > taken.Tokens:
			rules.charge(r, now, used-taken.Tokens)
		case taken.Version == rules.version:
			rules.giveBack(r, now, taken.Tokens-used, &taken.Stamp)
		}
		r.settleLease(lease)
	})
}
