package memory

import (
	"sync"
	"sync/atomic"
	"time"
)

// A shard is a hash table with linear probing. Readers take no lock. Writers add slots with mu
// held, and never change or remove a slot's hash until rebuild replaces the table.
type shard struct {
	table atomic.Pointer[table]

	mu         sync.Mutex
	used       int    // slots of the table
	maxKeys    int    // bound of used, except for blocked keys
	searchAt   int64  // when a full shard may look for evictable buckets again, in units
	overflow   bucket // shared by untracked keys: those for which there is no slot
	evicted    int64
	overflowed int64

	_ [64]byte // keeps shards on different cache lines
}

type table []slot

// A slot's bucket is stored before its hash: a reader that finds the hash finds the bucket.
type slot struct {
	hash   atomic.Uint64 // 0 if the slot is free
	bucket bucket
}

const minSlots = 16

func (s *shard) init(maxKeys int) {
	s.maxKeys = maxKeys
	t := make(table, minSlots)
	s.table.Store(&t)
}

// take takes units from a key's bucket if it holds them, or will hold them once ahead more
// units have returned. It returns the units that the bucket held before.
func (s *shard) take(hash uint64, units, ahead int64, l *Limiter) int64 {
	for {
		found, _ := s.table.Load().find(hash)
		switch {
		case found != nil:
		case units <= 0:
			found = s.lookup(hash)
		case units <= l.units.Full():
			found = s.insert(hash, l)
		}
		if found == nil {
			return l.units.Full() // a new key's bucket, which this call does not change
		}
		if have, ok := found.take(units, ahead, l); ok {
			return have
		}
		s.waitForTable()
	}
}

// waitForTable returns after the rebuild that has migrated a bucket.
func (s *shard) waitForTable() {
	s.mu.Lock()
	s.mu.Unlock() //nolint:staticcheck // an empty critical section waits
}

// fill fills a key's bucket.
func (s *shard) fill(hash uint64) {
	for {
		found := s.lookup(hash)
		if found == nil || found.set(0) {
			return
		}
		s.waitForTable()
	}
}

// block blocks a key's bucket. It adds a slot even to a full shard: a block of the overflow
// bucket would block all untracked keys.
func (s *shard) block(hash uint64, d time.Duration, l *Limiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := l.now()
	until := now + d.Microseconds()*l.units.PerMicro()
	t := *s.table.Load()
	if found, _ := t.find(hash); found != nil {
		found.set(-until)
		return
	}
	if 4*(s.used+1) > 3*len(t) {
		s.rebuild(t, now)
	}
	s.add(hash, -until)
}

// find returns a key's bucket, or nil and the free slot for it.
func (t *table) find(hash uint64) (*bucket, *slot) {
	mask := uint64(len(*t) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &(*t)[i]
		switch s.hash.Load() {
		case hash:
			return &s.bucket, nil
		case 0:
			return nil, s
		}
	}
}

// lookup returns a key's bucket, the overflow bucket if the shard is full, or nil.
func (s *shard) lookup(hash uint64) *bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, _ := s.table.Load().find(hash)
	if found == nil && s.used >= s.maxKeys {
		return &s.overflow
	}
	return found
}

// insert adds a bucket for a new key, or returns the overflow bucket if the shard is full.
func (s *shard) insert(hash uint64, l *Limiter) *bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, _ := s.table.Load().find(hash); found != nil {
		return found // another call has added it
	}
	if !s.ensureCapacity(l) {
		s.overflowed++
		return &s.overflow
	}
	return s.add(hash, 0)
}

// add adds a bucket to a table that has a free slot. It must be called with mu held.
func (s *shard) add(hash uint64, value int64) *bucket {
	_, free := s.table.Load().find(hash)
	free.bucket.Store(value)
	free.hash.Store(hash)
	s.used++
	return &free.bucket
}

// ensureCapacity grows the table or evicts buckets if a new bucket needs it, and reports
// whether there is room. It must be called with mu held.
func (s *shard) ensureCapacity(l *Limiter) bool {
	t := *s.table.Load()
	if s.used < s.maxKeys {
		if 4*(s.used+1) > 3*len(t) {
			s.rebuild(t, l.now())
		}
		return true
	}
	now := l.now()
	// A flood of new keys must not search a full shard at every call.
	if now < s.searchAt {
		return false
	}
	s.searchAt = now + searchPauseMicros*l.units.PerMicro()
	s.rebuild(t, now)
	return s.used < s.maxKeys
}

const searchPauseMicros = 100_000

// rebuild replaces the table by one without the buckets that are evictable at now. It must be
// called with mu held. Calls that find a migrated bucket wait for mu and look it up again.
func (s *shard) rebuild(old table, now int64) {
	type entry struct {
		hash  uint64
		value int64
	}
	live := make([]entry, 0, s.used)
	for i := range old {
		hash := old[i].hash.Load()
		if hash == 0 {
			continue
		}
		if value := old[i].bucket.Swap(migrated); !evictable(value, now) {
			live = append(live, entry{hash, value})
		}
	}
	fresh := make(table, slotsFor(len(live)+1))
	for _, e := range live {
		_, free := fresh.find(e.hash)
		free.bucket.Store(e.value)
		free.hash.Store(e.hash)
	}
	s.evicted += int64(s.used - len(live))
	s.used = len(live)
	s.table.Store(&fresh)
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
