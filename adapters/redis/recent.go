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
	mu        sync.Mutex
	known     map[uint64]aged[V]
	sweepAt   time.Duration
	overruled time.Duration // what was asked for before this may be wrong
}

// aged is what was true at some time after it was asked for and before it came, by the
// clock of this process.
type aged[V any] struct {
	value      V
	sent, came time.Duration
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

func (r *recent[V]) put(hash uint64, value V, sent, came time.Duration) {
	s := &r.shards[hash%recentShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent < s.overruled {
		return
	}
	if s.known == nil {
		s.known = map[uint64]aged[V]{}
	}
	if len(s.known) < maxRecent || s.sweep(came) {
		s.known[hash] = aged[V]{value, sent, came}
	}
}

func (r *recent[V]) forget(hash uint64) {
	s := &r.shards[hash%recentShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, hash)
}

// overrule forgets a key of which something else has become true by now, and does not
// believe answers that are still under way. Of others, it believes them a moment later.
func (r *recent[V]) overrule(hash uint64, now time.Duration) {
	s := &r.shards[hash%recentShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, hash)
	s.overruled = now
}

func (r *recent[V]) overruleAll(now time.Duration) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		clear(s.known)
		s.overruled = now
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
