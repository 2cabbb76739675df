package batch

import (
	"sync"
	"time"
)

// CacheTime is how long a [Cache] keeps an entry: the clocks of two machines drift apart, and
// other processes change the store.
const CacheTime = time.Second

const (
	cacheShards    = 16
	maxShardKeys   = 4096
	cacheSweepTime = 100 * time.Millisecond
)

// A Cache keeps what responses said about keys, for CacheTime. Keys are hashes. It contains up to
// 65,536 keys and ignores further ones. Times are on a monotonic clock of the caller. The zero
// Cache is empty. It is safe for concurrent use.
type Cache[V any] struct {
	shards [cacheShards]cacheShard[V]
}

type cacheShard[V any] struct {
	mu            sync.Mutex
	entries       map[uint64]Entry[V]
	sweepAt       time.Duration
	invalidatedAt time.Duration // responses to requests before it may be outdated
}

// An Entry is a value that was true at some time between Sent and Received.
type Entry[V any] struct {
	Value          V
	Sent, Received time.Duration
}

// Get returns the entry of a key that is at most CacheTime old.
func (c *Cache[V]) Get(hash uint64, now time.Duration) (Entry[V], bool) {
	s := &c.shards[hash%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[hash]
	if ok && now-e.Received > CacheTime {
		delete(s.entries, hash)
		return e, false
	}
	return e, ok
}

// Put stores the value in a response that was requested at sent and arrived at received.
func (c *Cache[V]) Put(hash uint64, value V, sent, received time.Duration) {
	s := &c.shards[hash%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent < s.invalidatedAt {
		return
	}
	if s.entries == nil {
		s.entries = map[uint64]Entry[V]{}
	}
	if len(s.entries) < maxShardKeys || s.sweep(received) {
		s.entries[hash] = Entry[V]{value, sent, received}
	}
}

// Delete removes the entry of a key.
func (c *Cache[V]) Delete(hash uint64) {
	s := &c.shards[hash%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, hash)
}

// Invalidate removes the entry of a key that the caller has changed, and ignores responses that
// are in flight. It ignores those of other keys in the same shard too.
func (c *Cache[V]) Invalidate(hash uint64, now time.Duration) {
	s := &c.shards[hash%cacheShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, hash)
	s.invalidatedAt = now
}

// InvalidateAll is Invalidate for every key.
func (c *Cache[V]) InvalidateAll(now time.Duration) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		clear(s.entries)
		s.invalidatedAt = now
		s.mu.Unlock()
	}
}

// sweep removes old entries and reports whether there is room. A flood of new keys must not
// sweep a full shard at every call.
func (s *cacheShard[V]) sweep(now time.Duration) bool {
	if now < s.sweepAt {
		return false
	}
	s.sweepAt = now + cacheSweepTime
	for hash, e := range s.entries {
		if now-e.Received > CacheTime {
			delete(s.entries, hash)
		}
	}
	return len(s.entries) < maxShardKeys
}
