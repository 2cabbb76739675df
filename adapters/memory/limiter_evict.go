package memory

import (
	"math"

	"github.com/penstock-go/penstock/limit/adapter"
)

const (
	sweepSlots         = 16         // that an insertion looks at if the table or the shard is nearly full
	sweepPauseMicros   = 100        // of a full shard after a sweep without success
	rebuildPauseMicros = 100_000    // between rebuilds of a full shard
	shrinkPauseMicros  = 10_000_000 // between checks whether a table is too large
)

// insertLocked adds a bucket for a new key, or returns nil if the shard is full. It evicts full
// buckets, so that a flood of new keys reuses their slots.
func (s *shard) insertLocked(hash uint64, l *Limiter) *slot {
	if s.used < s.maxKeys && 8*s.filled <= 5*len(s.table.Load().slots) {
		return s.insertAtLocked(hash, s.chainLocked(hash, math.MinInt64), l) // no bucket is full at that time
	}
	clock := l.clock()
	now := clock * s.table.Load().units.PerMicro()
	s.shrinkLocked(clock, now)
	if s.used < s.maxKeys {
		s.sweepLocked(now)
	}
	reusable := s.chainLocked(hash, now)
	if s.used >= s.maxKeys {
		if !s.makeRoomLocked(clock, now) {
			return nil
		}
		reusable = s.chainLocked(hash, now)
	}
	return s.insertAtLocked(hash, reusable, l)
}

// makeRoomLocked evicts buckets of a full shard, and reports whether it did. A flood of new keys
// must not search a full shard at every call.
func (s *shard) makeRoomLocked(clock, now int64) bool {
	if clock < s.searchAt {
		return false
	}
	s.sweepLocked(now)
	if t := s.table.Load(); s.used >= s.maxKeys && t.lowered.Load() >= now && clock >= s.rebuildAt {
		s.rebuildAt = clock + rebuildPauseMicros
		s.rebuildLocked(t.units, clock) // leaves the buckets behind that evict had to spare
	}
	if s.used < s.maxKeys {
		return true
	}
	s.searchAt = clock + sweepPauseMicros
	return false
}

// shrinkLocked replaces a table that has become much too large, such as after a flood of new keys.
func (s *shard) shrinkLocked(clock, now int64) {
	if clock < s.shrinkAt {
		return
	}
	s.shrinkAt = clock + shrinkPauseMicros
	t, live := s.table.Load(), 0
	for i := range t.slots {
		if value := t.slots[i].bucket.Load(); value != migrated && !isFull(value, now) {
			live++
		}
	}
	if 4*slotsFor(live+1) <= len(t.slots) {
		s.rebuildLocked(t.units, clock)
	}
}

// chainLocked returns a slot without a bucket that a key can use, nil if there is none. It evicts a
// bucket that is full at now if it meets one.
func (s *shard) chainLocked(hash uint64, now int64) (reusable *slot) {
	t := s.table.Load()
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		at := &t.slots[i]
		switch h := at.hash.Load(); {
		case h == 0:
			return reusable
		case h == hash:
			return at // the key was evicted; it must not get a second slot behind this one
		case reusable == nil && (at.bucket.Load() == migrated || s.evictLocked(t, at, now)):
			reusable = at
		}
	}
}

// insertAtLocked adds a bucket, in a reusable slot if it is not nil. The bucket starts as the
// overflow bucket, which the key may have used until now.
func (s *shard) insertAtLocked(hash uint64, reusable *slot, l *Limiter) *slot {
	t := s.table.Load()
	if reusable == nil && 4*(s.filled+1) > 3*len(t.slots) {
		s.rebuildLocked(t.units, l.clock())
		t = s.table.Load()
	}
	value := s.overflow.bucket.Load()
	if value <= 0 || isFull(value, l.now(t)) {
		value = s.fullMarkerLocked()
	}
	s.used++
	if reusable == nil {
		s.filled++
		return t.add(hash, value)
	}
	reusable.hash.Store(hash)
	reusable.bucket.Store(value)
	return reusable
}

// evictLocked removes a bucket if it is full, and reports whether it did. The slot keeps its hash,
// so that keys behind it are found.
func (s *shard) evictLocked(t *table, at *slot, now int64) bool {
	value := at.bucket.Load()
	if value == migrated || value == now || !isFull(value, now) || !at.bucket.CompareAndSwap(value, migrated) {
		return false
	}
	if t.lowered.Load() >= now { // loaded after the bucket, so that no refund is missed
		at.bucket.Store(value)
		return false
	}
	s.used--
	s.evicted++
	return true
}

// sweepLocked looks at some slots of the table and evicts their buckets if they are full.
func (s *shard) sweepLocked(now int64) {
	t := s.table.Load()
	mask := len(t.slots) - 1
	for range sweepSlots {
		// Backwards, so that slots before a free one become free too.
		s.sweepAt = (s.sweepAt - 1) & mask
		at := &t.slots[s.sweepAt]
		if at.hash.Load() == 0 {
			continue
		}
		s.evictLocked(t, at, now)
		next := &t.slots[(s.sweepAt+1)&mask]
		if at.bucket.Load() == migrated && next.hash.Load() == 0 {
			at.hash.Store(0) // no key behind this slot is searched across it
			s.filled--
		}
	}
}

// rebuildLocked replaces the table by one with the given units and without full buckets. Calls that
// find a migrated bucket look it up again with mu held. A held bucket stays held. It must be called
// with mu held, and with other units only if no bucket is held.
func (s *shard) rebuildLocked(units adapter.Units, clock int64) {
	old := s.table.Load()
	now := clock * old.units.PerMicro()
	type entry struct {
		hash  uint64
		value int64
	}
	live := make([]entry, 0, s.used)
	for i := range old.slots {
		hash := old.slots[i].hash.Load()
		if hash == 0 {
			continue
		}
		value := old.slots[i].bucket.Swap(migrated)
		if value == migrated || isFull(value, now) {
			continue
		}
		live = append(live, entry{hash, value})
	}
	fresh := newTable(units, len(live)+1)
	ahead, changed := old.maxAhead.Load(), units != old.units
	deficit := int64(0)
	keep := func(value int64) int64 {
		converted, excess, ok := fresh.convert(value, old, clock)
		if !ok {
			return s.fullMarkerLocked()
		}
		deficit = max(deficit, excess)
		if !changed {
			return value
		}
		return converted
	}
	for _, e := range live {
		fresh.add(e.hash, keep(e.value))
	}
	s.overflow.bucket.Store(keep(s.overflow.bucket.Load()))
	fresh.version = old.version
	if changed {
		fresh.version++
		ahead, fresh.deficit = deficit, deficit
	} else {
		fresh.deficit = old.deficit
	}
	fresh.maxAhead.Store(ahead)
	s.evicted += int64(s.used - len(live))
	s.used, s.filled = len(live), len(live)
	s.table.Store(fresh)
}
