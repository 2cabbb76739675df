package batch

import (
	"time"

	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A Lease is what a store does about a lease. The store keeps it with the bucket until its end, at
// which the units return. What returns is bounded by the low of the lease: the least that the bucket
// was missing since it was made, see docs/decisions/0092-undoing-deducts-lost-refill.md.
//
// If the store makes a lease, it takes nothing from a bucket that has [adapter.MaxLeases] which are not
// settled. It makes none of nothing.
//
// If it settles one, it takes its Excess instead of the Units of the [Take]. A negative one returns, if
// Returns. From then on until its end, settling it again does nothing; of settled ones, the store keeps
// the last [adapter.MaxLeases]. The store takes the Units if the bucket does not have the lease, and
// nothing if the bucket is blocked.
//
// Without an ID, a Length is that of the mark of a receipt: the store keeps a low for it, and returns
// nothing at its end. Of a bucket with [adapter.MaxMarks], the last one stands for it.
type Lease struct {
	ID     int64         // from 1 to 2^53 - 1; 0 if there is none
	Length time.Duration // whole milliseconds; 0 if there is nothing to make

	// Of a lease that is settled: the units that were used but not taken, and whether those return that
	// were taken but not used. Those of another policy do not.
	Excess  int64
	Returns bool
}

// NewLease returns the lease of a take that wants one, with a random identifier of 53 bits: two of the
// [adapter.MaxLeases] of a bucket share one with a probability below 2⁻³³.
func NewLease(take *limit.Take) Lease {
	if take.Lease == 0 {
		return Lease{}
	}
	return Lease{ID: 1 + random.N[int64](1<<53-1), Length: take.Lease}
}

// newMark returns the mark of a take that wants a receipt without a lease.
func newMark(take *limit.Take) Lease {
	if !take.Receipt || take.Cost == 0 {
		return Lease{}
	}
	return Lease{Length: adapter.ExactUndo + take.MaxWait.Truncate(time.Millisecond)}
}

// IsMark reports whether the store makes a mark.
func (l Lease) IsMark() bool { return l.ID == 0 && l.Length > 0 }

// Complete returns a Decision about a Take with the lease, if there is one: a receipt identifies it.
func (l Lease) Complete(d limit.Decision) limit.Decision {
	if d.Receipt.Tokens > 0 {
		d.Receipt.Lease = l.ID
	}
	return d
}

// settling returns what a store does to settle a lease. Of a take that took nothing, there is none.
func (p *Policy) settling(take *limit.Take) Take {
	what := Take{Units: p.DebtUnits(take.Cost), Lowest: p.Full() - adapter.MaxDeficit, Divisor: 1}
	receipt := take.Undone()
	if receipt.Lease == 0 {
		return what
	}
	what.Lease = Lease{ID: receipt.Lease, Returns: receipt.Version == p.version}
	if excess := take.Cost - receipt.Tokens; excess >= 0 {
		what.Lease.Excess = p.DebtUnits(excess)
	} else {
		what.Lease.Excess = -p.RefundUnits(-excess)
	}
	return what
}

// leaseDecision returns the Decision about a cost of costUnits with a lease.
func (s State) leaseDecision(costUnits int64, u *adapter.Units) limit.Decision {
	if s.BlockedFor > 0 || !s.LeasesFull {
		return s.decision(costUnits, u)
	}
	d := u.Decision(s.Units, costUnits)
	if d.Allowed {
		d = u.Decision(s.Units, 0)
		d.Allowed = false
	}
	d.RetryAfter = max(d.RetryAfter, s.LeaseEnds)
	return s.roundUp(d)
}
