package memory

import (
	"sync"
	"sync/atomic"
	"time"
)

// A shard is a hash table with linear probing. It is read without a lock; slots
// are only added, under the lock, until the table is replaced.
type shard struct {
	table atomic.Pointer[table]

	mu       sync.Mutex
	used     int   // slots of the table
	most     int   // buckets that may be kept
	searchAt int64 // when a full shard may look for room again, in units
	overflow bucket
	evicted  int64
	crowded  int64

	_ [64]byte // keeps shards on different cache lines
}

type table []slot

// A slot's bucket is set before its hash, so that whoever sees the hash sees the
// bucket.
type slot struct {
	hash   atomic.Uint64 // 0 if the slot is free
	bucket bucket
}

const leastSlots = 16

func (s *shard) init(most int) {
	s.most = most
	t := make(table, leastSlots)
	s.table.Store(&t)
}

// take takes need units from a key's bucket if it has them, or will have when ahead more
// have flowed in, and returns what it had.
func (s *shard) take(hash uint64, need, ahead int64, l *Limiter) int64 {
	for {
		found, _ := s.table.Load().find(hash)
		switch {
		case found != nil:
		case need <= 0:
			found = s.look(hash)
		case need <= l.units.Full():
			found = s.insert(hash, l)
		}
		if found == nil {
			return l.units.Full() // nothing is taken from a full bucket, nor given to it
		}
		if have, ok := found.take(need, ahead, l); ok {
			return have
		}
		s.waitForTable()
	}
}

func (s *shard) waitForTable() {
	s.mu.Lock()
	s.mu.Unlock() //nolint:staticcheck // an empty critical section is what waiting is
}

// fill fills a key's bucket.
func (s *shard) fill(hash uint64) {
	for {
		found := s.look(hash)
		if found == nil || found.set(0) {
			return
		}
		s.waitForTable()
	}
}

// block blocks a key's bucket. There is always room for one that is blocked: in the
// strangers' bucket it would block all of them.
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

// find returns a key's bucket, or nil and the free slot where it belongs.
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

// look returns a key's bucket, or the strangers' if there is no room for one, or nil.
func (s *shard) look(hash uint64) *bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, _ := s.table.Load().find(hash)
	if found == nil && s.used >= s.most {
		return &s.overflow
	}
	return found
}

// insert returns the bucket of a key that was not there: its own, or the
// strangers' if there is no room.
func (s *shard) insert(hash uint64, l *Limiter) *bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, _ := s.table.Load().find(hash); found != nil {
		return found
	}
	if !s.room(l) {
		s.crowded++
		return &s.overflow
	}
	return s.add(hash, 0)
}

// add adds a bucket for which there is room. It must be called with the lock held.
func (s *shard) add(hash uint64, value int64) *bucket {
	_, free := s.table.Load().find(hash)
	free.bucket.Store(value)
	free.hash.Store(hash)
	s.used++
	return &free.bucket
}

// room makes room for one more bucket and reports whether there is.
func (s *shard) room(l *Limiter) bool {
	t := *s.table.Load()
	if s.used < s.most {
		if 4*(s.used+1) > 3*len(t) {
			s.rebuild(t, l.now())
		}
		return true
	}
	now := l.now()
	// A flood of new keys must not make a full shard search at every one.
	if now < s.searchAt {
		return false
	}
	s.searchAt = now + searchPauseMicros*l.units.PerMicro()
	s.rebuild(t, now)
	return s.used < s.most
}

const searchPauseMicros = 100_000

// rebuild replaces the table by one without the buckets that are full at now.
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
		if value := old[i].bucket.Swap(moved); !worthless(value, now) {
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

// slotsFor leaves room for a third more buckets than n, before the table is
// three quarters full.
func slotsFor(n int) int {
	slots := leastSlots
	for 9*slots < 16*n {
		slots *= 2
	}
	return slots
}
