package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// A Limiter is a [ratelimit.Limiter] in this process. A call takes no lock and
// allocates nothing, and one that is denied writes nothing.
//
// Buckets are found by a 64-bit hash of their key with a seed that nobody knows.
// Should two of n keys ever share a hash, for which the odds are below n²/2⁶⁵,
// they share a bucket.
type Limiter struct {
	units  ratelimit.Units
	seed   maphash.Seed
	clock  func() int64 // microseconds since the limiter was made
	shards []shard
	shift  int          // a hash's top bits choose its shard
	ahead  atomic.Int64 // the most that was ever reserved beyond a full bucket, in units
}

var (
	_ ratelimit.Local    = (*Limiter)(nil)
	_ ratelimit.Blocker  = (*Limiter)(nil)
	_ ratelimit.Reserver = (*Limiter)(nil)
)

const (
	defaultMaxKeys = 1 << 20
	mostShards     = 64
	leastShardKeys = 256 // fewer shards rather than smaller ones
)

// NewLimiter returns a limiter that keeps up to 1,048,576 buckets. It panics if
// the policy is not valid.
func NewLimiter(policy ratelimit.Policy) *Limiter {
	return NewLimiterMaxKeys(policy, defaultMaxKeys)
}

// NewLimiterMaxKeys is NewLimiter with another bound on the buckets, which take
// 21 to 43 bytes each. Only buckets that are full again are dropped, which nobody
// can tell from ones that were never there. Where none can be dropped, new keys
// share a bucket: a flood of strangers throttles strangers, not the known.
func NewLimiterMaxKeys(policy ratelimit.Policy, maxKeys int) *Limiter {
	if maxKeys < 1 {
		panic(fmt.Sprintf("memory: maxKeys is %d; it must be at least 1", maxKeys))
	}
	shards := 1
	for shards < mostShards && maxKeys/(2*shards) >= leastShardKeys {
		shards *= 2
	}
	epoch := time.Now()
	l := &Limiter{
		units:  policy.Units(),
		seed:   maphash.MakeSeed(),
		clock:  func() int64 { return time.Since(epoch).Microseconds() },
		shards: make([]shard, shards),
		shift:  64 - bits.TrailingZeros(uint(shards)),
	}
	for i := range l.shards {
		l.shards[i].init((maxKeys + shards - 1) / shards)
	}
	return l
}

// Local marks a limiter that decides in this process.
func (l *Limiter) Local() {}

// Consume takes cost tokens from key's bucket, or none of them. It ignores its
// context: it never waits.
func (l *Limiter) Consume(_ context.Context, key ratelimit.Key, cost int64) (ratelimit.Decision, error) {
	if cost < 0 {
		return ratelimit.Decision{}, fmt.Errorf("memory: cost is %d; it must not be negative", cost)
	}
	need := l.units.Need(cost)
	have := l.take(key.Hash(l.seed), need, 0)
	if have <= blocked {
		return l.units.Blocked(blockedFor(have, &l.units), need), nil
	}
	return l.units.Decide(have, need), nil
}

// Stats returns how many buckets there are, and what became of others. It takes each of up to
// 64 locks for a moment.
func (l *Limiter) Stats() ratelimit.Stats {
	var stats ratelimit.Stats
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		stats.Keys += int64(s.used)
		stats.Evicted += s.evicted
		stats.Crowded += s.crowded
		s.mu.Unlock()
	}
	return stats
}

func (l *Limiter) take(hash uint64, need, ahead int64) (have int64) {
	return l.shards[hash>>l.shift].take(hash, need, ahead, l)
}

// now is in units since the limiter was made.
func (l *Limiter) now() int64 { return l.clock() * l.units.PerMicro() }
