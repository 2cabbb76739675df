package memory

import (
	"slices"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A lease is a Take of a key whose tokens may return: at its end, if its receipt has a Lease, or when
// it is undone. Times are in microseconds since the limiter was created.
type lease struct {
	receipt limit.Receipt
	hash    uint64
	ends    int64 // when it is forgotten
	settled bool  // its end returns nothing
	index   int   // in the heap

	// low is the least that the bucket was missing since the Take, in units, before the changes that the
	// low of its keyLeases covers: it bounds what returns. It is untracked for a Take from an overflow
	// bucket, which other keys change too.
	low int64
}

const untracked = -1

// isMark reports whether the lease is that of a receipt without one.
func (e *lease) isMark() bool { return e.receipt.Lease == 0 }

// A keyLeases value has the leases of one key. See docs/decisions/0092-undoing-deducts-lost-refill.md
// for its arithmetic.
type keyLeases struct {
	open    []*lease // not settled
	marks   []*lease // by their stamps
	settled []*lease // in the order of their settlements
	low     int64    // the least that the bucket was missing before a change since lows were lowered
}

func (k *keyLeases) isEmpty() bool { return len(k.open)+len(k.marks)+len(k.settled) == 0 }

// lower records what the bucket was missing before a change: nothing, if it is another one than that of the
// leases.
func (k *keyLeases) lower(missing int64) {
	if k != nil {
		k.low = min(k.low, max(missing, 0))
	}
}

// lowerAll lowers all leases, and begins to record anew.
func (k *keyLeases) lowerAll(missing int64) {
	k.each(func(e *lease) { e.low = min(e.low, k.low, missing) })
	k.low = never
}

// each calls f with each lease that may return something exactly.
func (k *keyLeases) each(f func(*lease)) {
	for _, all := range [][]*lease{k.open, k.marks} {
		for _, e := range all {
			if e.low != untracked {
				f(e)
			}
		}
	}
}

// giveBack returns how many of some units return of a Take with a low, and lowers all leases as if it had
// been one of as many less. All leases have been lowered.
func (k *keyLeases) giveBack(units, low int64) int64 {
	units = min(units, low)
	k.each(func(e *lease) {
		if e.low >= low {
			e.low -= units // a later Take, or this one
		} else {
			e.low = min(e.low, low-units)
		}
	})
	return units
}

// giveBackUntracked is giveBack for a Take of which only the time is known.
func (k *keyLeases) giveBackUntracked(units int64) int64 {
	k.each(func(e *lease) { e.low = max(e.low-units, 0) })
	return units
}

// find returns the lease with an identifier that is not forgotten, or nil.
func (k *keyLeases) find(id int64) *lease {
	if k == nil {
		return nil
	}
	for _, all := range [][]*lease{k.open, k.settled} {
		if i := slices.IndexFunc(all, func(e *lease) bool { return e.receipt.Lease == id }); i >= 0 {
			return all[i]
		}
	}
	return nil
}

// markOf returns the mark of a receipt, or nil: that of the last Take until then by the same policy, whose
// low is at most that of the receipt. Of Takes at one time, it is that of the last one: between them, no
// refill was lost.
func (k *keyLeases) markOf(r limit.Receipt) (found *lease) {
	for _, e := range k.marks {
		if e.receipt.Version == r.Version && e.receipt.Stamp <= r.Stamp && (found == nil || found.receipt.Stamp <= e.receipt.Stamp) {
			found = e
		}
	}
	return found
}

// addMark keeps a mark apart from the others, if there is room: otherwise the last one stands for it,
// whose low is less. Takes with one low need one mark, that of the first.
func (k *keyLeases) addMark(e *lease) (forgotten []*lease, added bool) {
	marks := k.marks[:0:0]
	for _, m := range k.marks {
		if n := len(marks); n > 0 && marks[n-1].low >= m.low {
			forgotten = append(forgotten, m)
			continue
		}
		marks = append(marks, m)
	}
	if added = len(marks) < adapter.MaxMarks; added {
		marks = append(marks, e)
	}
	k.marks = marks
	return forgotten, added
}

// remove forgets a lease.
func (k *keyLeases) remove(e *lease) {
	is := func(other *lease) bool { return other == e }
	k.open, k.marks, k.settled = slices.DeleteFunc(k.open, is), slices.DeleteFunc(k.marks, is), slices.DeleteFunc(k.settled, is)
}

// settle keeps a lease as one that is settled, and returns the one that is no longer known to be, or nil.
func (k *keyLeases) settle(e *lease) (forgotten *lease) {
	k.remove(e)
	e.settled = true
	if k.settled = append(k.settled, e); len(k.settled) > adapter.MaxLeases {
		forgotten, k.settled = k.settled[0], k.settled[1:]
	}
	return forgotten
}
