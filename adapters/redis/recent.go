package redis

import (
	"sync"
	"time"
)

// recent remembers what was learnt of keys, for a second at most: the clocks of two
// machines drift apart, and another process may change what is stored. It holds 65,536
// keys; what does not fit is not remembered. The zero value is empty.
type recent[V any] struct {
	shards [recentShards]recentShard[V]
}

const (
	recentShards    = 16
	maxRecent       = 4096 // in a shard
	recentTime      = time.Second
	recentSweepTime = 100 * time.Millisecond
)

type recentShard[V any] struct {
	mu      sync.Mutex
	known   map[uint64]aged[V]
	sweepAt time.Duration
}

// aged is what came at a time of this process.
type aged[V any] struct {
	value V
	came  time.Duration
}

func (r *recent[V]) get(hash uint64, now time.Duration) (aged[V], bool) {
	s := &r.shards[hash%recentShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.known[hash]
	if ok && now-known.came > recentTime {
		delete(s.known, hash)
		return known, false
	}
	return known, ok
}

func (r *recent[V]) put(hash uint64, value V, came time.Duration) {
	s := &r.shards[hash%recentShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[uint64]aged[V]{}
	}
	if len(s.known) < maxRecent || s.sweep(came) {
		s.known[hash] = aged[V]{value, came}
	}
}

func (r *recent[V]) forget(hash uint64) {
	s := &r.shards[hash%recentShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, hash)
}

func (r *recent[V]) forgetAll() {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		clear(s.known)
		s.mu.Unlock()
	}
}

// sweep reports whether there is room.
func (s *recentShard[V]) sweep(now time.Duration) bool {
	if now < s.sweepAt {
		return false
	}
	s.sweepAt = now + recentSweepTime
	for hash, known := range s.known {
		if now-known.came > recentTime {
			delete(s.known, hash)
		}
	}
	return len(s.known) < maxRecent
}
