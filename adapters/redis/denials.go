package redis

import (
	"sync"
	"time"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// denials remembers buckets that are nearly empty, so that a client that floods costs
// Redis nothing. What a bucket held at one time bounds what it can hold later: who
// needs more than that can be refused here, and the refusal is exact.
type denials struct {
	shards [denialShards]denialShard
}

const (
	denialShards    = 16
	maxDenials      = 4096 // in a shard
	denialTime      = time.Second
	denialSweepTime = 100 * time.Millisecond
)

type denialShard struct {
	mu      sync.Mutex
	known   map[uint64]denial
	sweepAt time.Duration
}

// A denial is what a bucket held at some time between two.
type denial struct {
	have       int64
	sent, came time.Duration
}

// decide refuses what the bucket cannot pay for yet, or returns false: only Redis
// knows.
func (d *denials) decide(hash uint64, now time.Duration, need int64, u *ratelimit.Units) (ratelimit.Decision, bool) {
	s := &d.shards[hash%denialShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.known[hash]
	if !ok {
		return ratelimit.Decision{}, false
	}
	// The clocks of two machines drift apart, and another process may have given
	// tokens back: what is known grows old.
	if now-known.came > denialTime {
		delete(s.known, hash)
		return ratelimit.Decision{}, false
	}
	if most := held(known.have, now-known.sent, u); need <= most {
		return ratelimit.Decision{}, false
	}
	// For the wait, the other bound: it must be enough.
	return u.Decide(held(known.have, now-known.came, u), need), true
}

// held is what a bucket holds if nobody takes from it.
func held(have int64, after time.Duration, u *ratelimit.Units) int64 {
	return min(have+after.Microseconds()*u.PerMicro(), u.Full())
}

// learn remembers what a bucket holds after a call, if that is less than the next
// one is likely to need.
func (d *denials) learn(hash uint64, left, need int64, sent, came time.Duration) {
	s := &d.shards[hash%denialShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if left >= need {
		delete(s.known, hash)
		return
	}
	if s.known == nil {
		s.known = map[uint64]denial{}
	}
	if len(s.known) >= maxDenials && !s.sweep(came) {
		return
	}
	s.known[hash] = denial{left, sent, came}
}

// forget is for buckets that were filled by hand.
func (d *denials) forget(hash uint64) {
	s := &d.shards[hash%denialShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, hash)
}

// sweep reports whether there is room.
func (s *denialShard) sweep(now time.Duration) bool {
	if now < s.sweepAt {
		return false
	}
	s.sweepAt = now + denialSweepTime
	for hash, known := range s.known {
		if now-known.came > denialTime {
			delete(s.known, hash)
		}
	}
	return len(s.known) < maxDenials
}
