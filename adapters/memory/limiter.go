package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
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
	epoch  time.Time
	shards []shard
	shift  int // a hash's top bits choose its shard
}

var (
	_ ratelimit.Local      = (*Limiter)(nil)
	_ ratelimit.Adjustable = (*Limiter)(nil)
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
	l := &Limiter{
		units:  policy.Units(),
		seed:   maphash.MakeSeed(),
		epoch:  time.Now(),
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
	return l.consume(key.Hash(l.seed), l.micros(), cost)
}

// Refund gives tokens back to key's bucket, which never holds more than its capacity.
func (l *Limiter) Refund(_ context.Context, key ratelimit.Key, tokens int64) error {
	return l.refund(key.Hash(l.seed), l.micros(), tokens)
}

// Reset fills key's bucket.
func (l *Limiter) Reset(_ context.Context, key ratelimit.Key) error {
	return l.refund(key.Hash(l.seed), l.micros(), math.MaxInt64)
}

func (l *Limiter) micros() int64 { return time.Since(l.epoch).Microseconds() }

// refund is Refund at a time: taking a negative need.
func (l *Limiter) refund(hash uint64, micros, tokens int64) error {
	if tokens < 0 {
		return fmt.Errorf("memory: refund is %d; it must not be negative", tokens)
	}
	need := min(l.units.Need(tokens), l.units.Full())
	l.shards[hash>>l.shift].take(hash, micros*l.units.PerMicro(), -need, &l.units)
	return nil
}

// consume is Consume at a time, in microseconds since the epoch.
func (l *Limiter) consume(hash uint64, micros, cost int64) (ratelimit.Decision, error) {
	if cost < 0 {
		return ratelimit.Decision{}, fmt.Errorf("memory: cost is %d; it must not be negative", cost)
	}
	need := l.units.Need(cost)
	now := micros * l.units.PerMicro()
	have := l.shards[hash>>l.shift].take(hash, now, need, &l.units)
	return l.units.Decide(have, need), nil
}

// A bucket is when it will be full again, in units since the epoch. At 0 it is
// full now and ever.
type bucket struct{ atomic.Int64 }

// moved is the value of a bucket that has gone to another table.
const moved = math.MinInt64

// take takes need units if the bucket has them, or gives them back if need is negative.
// It returns what the bucket had, and false if the bucket has moved.
func (b *bucket) take(now, need int64, u *ratelimit.Units) (have int64, ok bool) {
	for {
		fullAt := b.Load()
		if fullAt == moved {
			return 0, false
		}
		debt := min(max(fullAt-now, 0), u.Full())
		have = u.Full() - debt
		next := now + debt
		if need <= have {
			next = max(next+need, now)
		}
		// A denial writes only where the clock has stepped back: otherwise the
		// bucket would stay empty until the clock has caught up.
		if next == fullAt || need == 0 || need > have && fullAt-now <= u.Full() {
			return have, true
		}
		if b.CompareAndSwap(fullAt, next) {
			return have, true
		}
	}
}
