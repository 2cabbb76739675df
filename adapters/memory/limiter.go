package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A Limiter is a [limit.Limiter] in this process that implements every optional interface of
// package limit. A call for a key that has a bucket takes no lock and allocates nothing; if it is
// denied, it writes nothing.
//
// A bucket is found by a 64-bit hash of its key with a random seed. Two of n keys share a hash,
// and therefore a bucket, with a probability below n²/2⁶⁵.
type Limiter struct {
	seed   maphash.Seed
	clock  func() int64 // microseconds since the limiter was created
	shards []shard
	shift  int // the hash's bits above it select the shard

	changes     sync.Mutex // held by SetPolicy; locked before mu of a shard
	description atomic.Pointer[[]limit.Description]
}

var (
	_ limit.InProcess      = (*Limiter)(nil)
	_ limit.Blocker        = (*Limiter)(nil)
	_ limit.Reserver       = (*Limiter)(nil)
	_ limit.Keeper         = (*Limiter)(nil)
	_ limit.PartialLimiter = (*Limiter)(nil)
	_ limit.Charger        = (*Limiter)(nil)
	_ limit.PolicySetter   = (*Limiter)(nil)
	_ limit.Describer      = (*Limiter)(nil)
	_ limit.BatchLimiter   = (*Limiter)(nil)
)

const (
	defaultMaxKeys = 1 << 20
	maxShards      = 64
	minShardKeys   = 256 // a limiter of few keys has fewer shards instead of smaller ones
)

// NewLimiter returns a limiter with up to 1,048,576 buckets. It panics if the policy is not
// valid.
func NewLimiter(policy limit.Policy) *Limiter {
	return NewLimiterMaxKeys(policy, defaultMaxKeys)
}

// NewLimiterMaxKeys returns a limiter with up to maxKeys buckets, of 21 to 43 bytes each. It
// panics if the policy is not valid or maxKeys is less than 1.
//
// The limiter evicts only full buckets, which are equal to those of unused keys. If it finds
// none, all new keys of a shard use one overflow bucket: a flood of new keys throttles new keys,
// and no key that has a bucket. Stats counts such calls. A key that gets a bucket of its own
// later starts with what the overflow bucket holds.
func NewLimiterMaxKeys(policy limit.Policy, maxKeys int) *Limiter {
	return newLimiter(policy, maxKeys, microsecondsSince(time.Now()))
}

// newLimiter returns a limiter with a clock in microseconds, which must not be negative.
func newLimiter(policy limit.Policy, maxKeys int, clock func() int64) *Limiter {
	if maxKeys < 1 {
		panic(fmt.Sprintf("memory: maxKeys is %d; it must be at least 1", maxKeys))
	}
	shards := 1
	for shards < maxShards && maxKeys/(2*shards) >= minShardKeys {
		shards *= 2
	}
	units := policy.Units()
	l := &Limiter{
		seed:   maphash.MakeSeed(),
		clock:  clock,
		shards: make([]shard, shards),
		shift:  64 - bits.TrailingZeros(uint(shards)),
	}
	l.describe(policy)
	for i := range l.shards {
		l.shards[i].init(units, (maxKeys-1)/shards+1)
	}
	return l
}

// InProcess marks a limiter that decides in this process.
func (l *Limiter) InProcess() {}

// Consume takes cost tokens from key's bucket, or none of them. It ignores its context, because
// it never waits.
func (l *Limiter) Consume(_ context.Context, key limit.Key, cost int64) (limit.Decision, error) {
	if cost < 0 {
		return limit.Decision{}, fmt.Errorf("memory: cost is %d; it must not be negative", cost)
	}
	hash := key.Hash(l.seed)
	s := &l.shards[hash>>l.shift]
	r := request{tokens: cost}
	t := s.table.Load()
	if found, _ := t.find(hash); found != nil { // as shard.take, but for most calls
		costUnits := t.units.CostUnits(cost)
		have, ok := found.take(hash, costUnits, 0, &r, t, l)
		switch {
		case ok && have > blocked:
			return t.units.Decision(have, costUnits), nil
		case ok:
			return t.decision(have, &r), nil
		}
	}
	have, t := s.takeLocked(hash, &r, l)
	return t.decision(have, &r), nil
}

// consume makes a request of kind consume.
func (l *Limiter) consume(key *limit.Key, r *request) limit.Decision {
	have, t := l.take(key.Hash(l.seed), r)
	return t.decision(have, r)
}

// Stats returns how many buckets there are, and how many keys were evicted or overflowed. It
// locks each of up to 64 shards for a moment.
func (l *Limiter) Stats() limit.Stats {
	var stats limit.Stats
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		stats.Keys += int64(s.used)
		stats.Evicted += s.evicted
		stats.Overflowed += s.overflowed
		s.mu.Unlock()
	}
	return stats
}

func (l *Limiter) take(hash uint64, r *request) (have int64, t *table) {
	return l.shards[hash>>l.shift].take(hash, r, l)
}

// now returns the time in units of a table since the limiter was created.
func (l *Limiter) now(t *table) int64 { return l.clock() * t.units.PerMicro() }
