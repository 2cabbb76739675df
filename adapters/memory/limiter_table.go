package memory

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A table is a hash table with linear probing, whose buckets are counted in units of one policy.
// Calls find slots without a lock. Slots change with mu of the shard held.
type table struct {
	units   adapter.Units
	version int64 // how often the policy has changed
	slots   []slot

	// maxAhead bounds the deficit of a bucket, in units: the longest maxWait of a reservation,
	// the largest charge, or what a change of the policy has left. A larger deficit means that
	// the clock has gone backwards.
	maxAhead atomic.Int64
	deficit  int64 // the largest that a change of the policy has left

	// lowered is the latest time that a bucket has lost by a refund, a reset or a block. Up to
	// that time, a slot's bucket may have had values in the future although it is full.
	lowered atomic.Int64
}

const minSlots = 16

func newTable(units adapter.Units, buckets int) *table {
	return &table{units: units, slots: make([]slot, slotsFor(buckets))}
}

// slotsFor returns a table size, a power of two, that a third more than n buckets fill to
// three quarters at most.
func slotsFor(n int) int {
	slots := minSlots
	for 9*slots < 16*n {
		slots *= 2
	}
	return slots
}

// find returns a key's slot, or nil and the free slot for it. The slot of an evicted key may be
// found too; its bucket is migrated.
func (t *table) find(hash uint64) (found, free *slot) {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		switch s.hash.Load() {
		case hash:
			return s, nil
		case 0:
			return nil, s
		}
	}
}

// add stores a bucket in a table that has a free slot and no slot of the key. The bucket is stored
// before the hash: a call that finds the hash finds the bucket.
func (t *table) add(hash uint64, value int64) *slot {
	_, free := t.find(hash)
	free.bucket.Store(value)
	free.hash.Store(hash)
	return free
}

// missing returns how many units a bucket lacks, and whether that shows that the clock has gone
// backwards; the bucket is then as empty as it can be without reservations.
func (t *table) missing(fullAt, now int64) (missing int64, clockWentBack bool) {
	missing = max(fullAt-now, 0)
	if excess := missing - t.units.Full(); excess > 0 && excess > t.maxAhead.Load() {
		return t.units.Full() + t.deficit, true
	}
	return missing, false
}

// decision returns the Decision about a request of kind consume or look to a bucket that held have.
func (t *table) decision(have int64, r *request) limit.Decision {
	costUnits := t.units.CostUnits(r.tokens)
	switch {
	case have <= blocked:
		if r.keep > 0 && r.keep > t.units.WholeTokens(t.units.Full())-r.tokens {
			costUnits = math.MaxInt64
		}
		return t.units.BlockedDecision(blockedFor(have, &t.units), costUnits)
	case r.maxWait > 0:
		return t.units.ReserveDecision(have, costUnits, time.Duration(r.maxWait)*time.Microsecond)
	case r.keep > 0:
		return t.units.KeepDecision(have, costUnits, t.units.CostUnits(r.keep))
	default:
		return t.units.Decision(have, costUnits)
	}
}

// decide is decision for a request of kind upTo, too, of which tokens are then those that it took, or 1
// if there were none.
func (t *table) decide(have int64, r *request) limit.Decision {
	var granted int64
	if r.kind == upTo {
		granted = min(r.tokens, t.units.WholeTokens(have))
		r.tokens = max(granted, min(r.tokens, 1))
	}
	d := t.decision(have, r)
	d.Granted = granted
	return d
}

// receipt returns that of a request that took its tokens.
func (t *table) receipt(r *request) limit.Receipt {
	return limit.Receipt{Tokens: r.tokens, Stamp: r.at / t.units.PerMicro(), Version: t.version}
}

func (t *table) raiseAhead(units int64) { raise(&t.maxAhead, units) }

// lower records that a bucket loses the value fullAt.
func (t *table) lower(fullAt int64) { raise(&t.lowered, fullAt) }

func raise(v *atomic.Int64, to int64) {
	for old := v.Load(); to > old && !v.CompareAndSwap(old, to); {
		old = v.Load()
	}
}

// isFull reports whether a bucket is full and not blocked, and thus equal to a new one.
func isFull(value, now int64) bool { return value <= now && blockLeft(value, now) <= 0 }

// convert returns the value of a bucket under the units of t, and what it lacks beyond their
// capacity. It returns false if the bucket is full.
func (t *table) convert(value int64, old *table, clock int64) (converted, deficit int64, ok bool) {
	now, oldNow := clock*t.units.PerMicro(), clock*old.units.PerMicro()
	if isFull(value, oldNow) {
		return 0, 0, false
	}
	if left := blockLeft(value, oldNow); left > 0 {
		return blockedUntil(now + left/old.units.PerMicro()*t.units.PerMicro()), 0, true
	}
	missing, _ := old.missing(value, oldNow)
	missing = t.units.FromUnits(missing, old.units)
	return now + missing, missing - t.units.Full(), true
}
