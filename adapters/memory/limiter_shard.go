package memory

import (
	"sync"
	"sync/atomic"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A shard keeps the buckets of a part of the keys. Calls for keys that have a bucket take no
// lock, unless the key has leases. mu is never held while waiting for another lock, except that
// TakeBatch locks several shards in the order of their addresses.
type shard struct {
	table  atomic.Pointer[table]
	leases leases

	mu         sync.Mutex
	used       int   // slots of the table with a bucket
	filled     int   // slots with a hash; the others end the search for a key
	maxKeys    int   // bound of used, except for blocked keys
	sweepAt    int   // index of the slot to look at next for a full bucket
	searchAt   int64 // when a full shard may look for full buckets again, in microseconds
	rebuildAt  int64 // when a full shard may replace its table again, in microseconds
	shrinkAt   int64 // when to check again whether the table is too large, in microseconds
	markers    int64 // how many values that mean full were used
	overflow   slot  // shared by untracked keys: those for which there is no slot; it has no hash
	evicted    int64
	overflowed int64

	_ [64]byte // keeps shards on different cache lines
}

func (s *shard) init(units adapter.Units, maxKeys int) {
	s.maxKeys = maxKeys
	s.leases.init()
	s.table.Store(newTable(units, 0))
	s.overflow.bucket.Store(s.fullMarkerLocked())
}

// takePlain decides about a call that takes a cost whole, if its bucket has no deficit and the shard no leases.
// It returns false, and has changed nothing, if take must decide. It loads the same values in the same order as
// slot.take, which has the reasons.
func (s *shard) takePlain(hash uint64, cost int64, l *Limiter, d *limit.Decision) bool {
	added := s.leases.added.Load()
	t := s.table.Load()
	found, _ := t.find(hash)
	if found == nil || s.leases.next.Load() != never {
		return false
	}
	costUnits, before := t.units.CostUnits(cost), found.bucket.Load()
	for now := l.now(t); ; {
		fullAt := found.bucket.Load()
		have := t.units.Full() - max(fullAt-now, 0)
		if fullAt <= 0 || have < 0 || found.hash.Load() != hash {
			return false
		}
		takes := costUnits <= have && cost > 0
		if !takes && fullAt != before || takes && added != s.leases.added.Load() {
			return false
		}
		if !takes || found.bucket.CompareAndSwap(fullAt, max(fullAt, now)+costUnits) {
			t.units.Decide(have, costUnits, d)
			return true
		}
	}
}

// take makes a request to a key's bucket. It returns what the bucket held before, in units of
// the returned table.
func (s *shard) take(hash uint64, r *request, l *Limiter) (have int64, t *table) {
	for {
		if !r.tracked {
			r.seen = s.leases.added.Load() // before it asks whether the key has leases
			if s.leases.next.Load() != never {
				if have, t, ok := s.leases.takeTracked(hash, r, l); ok {
					return have, t
				}
			}
		}
		t = s.table.Load()
		if found, _ := t.find(hash); found != nil {
			units, ahead := r.units(&t.units)
			if have, ok := found.take(hash, units, ahead, r, t, l); ok {
				return have, t
			}
		}
		if have, t := s.takeSlowly(hash, r, l); t != nil {
			return have, t
		}
	}
}

// takeSlowly is take for a key that may have no bucket. It locks mu to find or add one. It returns no table
// if the request is outdated.
func (s *shard) takeSlowly(hash uint64, r *request, l *Limiter) (have int64, t *table) {
	for !r.isOutdated(hash, l) {
		s.mu.Lock()
		found := s.bucketForLocked(hash, r, l)
		t = s.table.Load()
		units, ahead := r.units(&t.units)
		if found == &s.overflow {
			// The overflow bucket changes only with mu held, so that no call still charges
			// it for a key that has got a bucket of its own.
			r.overflow, r.tracked = true, true // no lease has a low of it
			have, _ = found.take(0, units, ahead, r, t, l)
			s.mu.Unlock()
			return have, t
		}
		s.mu.Unlock()
		if have, ok := found.take(hash, units, ahead, r, t, l); ok {
			return have, t
		}
	}
	return 0, nil
}

// bucketForLocked returns a key's slot, or the overflow bucket.
func (s *shard) bucketForLocked(hash uint64, r *request, l *Limiter) *slot {
	if found := s.lookupLocked(hash); found != nil {
		return found
	}
	if !r.needsBucket(&s.table.Load().units) {
		return &s.overflow
	}
	if added := s.insertLocked(hash, l); added != nil {
		return added
	}
	s.overflowed++
	return &s.overflow
}

// lookupLocked returns a key's slot, or nil.
func (s *shard) lookupLocked(hash uint64) *slot {
	found, _ := s.table.Load().find(hash)
	if found == nil || found.bucket.Load() == migrated {
		return nil
	}
	return found
}

func (s *shard) fill(hash uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.lookupLocked(hash)
	if found == nil {
		found = &s.overflow
	}
	found.replaceLocked(s.fullMarkerLocked(), s.table.Load())
}

// block blocks a key's bucket until a time in microseconds. It adds a slot even to a full shard:
// a block of the overflow bucket would block all untracked keys.
func (s *shard) block(hash uint64, until int64, l *Limiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.lookupLocked(hash)
	if found == nil {
		found = s.insertAtLocked(hash, s.chainLocked(hash, l.now(s.table.Load())), l)
	}
	t := s.table.Load()
	found.replaceLocked(blockedUntil(until*t.units.PerMicro()), t)
}

// fullMarkerLocked returns a value that means full and was not used before.
func (s *shard) fullMarkerLocked() int64 {
	s.markers++
	return -(s.markers % fullMarkers)
}
