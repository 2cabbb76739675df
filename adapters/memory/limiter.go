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
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// A Limiter is a [limit.Limiter] in this process with token buckets. It can do every [limit.Take] and
// implements every optional interface of package limit that needs no store. A call for a key that has a bucket takes no lock and allocates nothing, unless
// the key has leases or receipts of the last minute; if it is denied, it writes nothing.
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
	_ adapter.InProcess                = (*Limiter)(nil)
	_ limit.Blocker                    = (*Limiter)(nil)
	_ limit.PolicySetter[limit.Policy] = (*Limiter)(nil)
	_ adapter.Describer                = (*Limiter)(nil)
	_ adapter.Batcher                  = (*Limiter)(nil)
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
	units := adapter.UnitsOf(policy)
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

// Take takes tokens from key's bucket. It ignores its context, because it never waits.
func (l *Limiter) Take(_ context.Context, key limit.Key, take limit.Take) (d limit.Decision, err error) {
	hash := key.Hash(l.seed)
	s := &l.shards[hash>>l.shift]
	if take.IsPlain() && s.takePlain(hash, take.Cost, l, &d) {
		return d, nil
	}
	if s.leases.next.Load() != never {
		s.leases.end(l)
	}
	if !take.IsPlain() {
		return l.takeSpecial(hash, &take)
	}
	r := request{tokens: take.Cost}
	have, t := s.take(hash, &r, l)
	return t.decision(have, &r), nil
}

// takeSpecial is Take for all that is not plain.
func (l *Limiter) takeSpecial(hash uint64, take *limit.Take) (limit.Decision, error) {
	if err := take.Validate(); err != nil {
		return limit.Decision{}, fmt.Errorf("memory: %w", err)
	}
	r := request{tokens: take.Cost, keep: take.Keep, maxWait: take.MaxWait.Microseconds()}
	switch take.Mode {
	case mode.Looking:
		r.kind = look
	case mode.Partial:
		r.kind = upTo
	case mode.Charging:
		r.kind = charge
		l.take(hash, &r)
		return limit.Decision{}, nil
	case mode.Returning:
		r.kind = refund
		l.take(hash, &r)
		return limit.Decision{}, nil
	case mode.Undoing:
		l.leases(hash).undo(l, hash, take.Undone())
		return limit.Decision{}, nil
	case mode.Settling:
		l.leases(hash).settle(l, hash, take.Undone(), take.Cost)
		return limit.Decision{}, nil
	}
	switch {
	case take.Lease > 0:
		return l.leases(hash).takeLeased(l, hash, &r, take.Lease.Microseconds(), true), nil
	case take.Receipt:
		return l.leases(hash).takeLeased(l, hash, &r, (adapter.ExactUndo + take.MaxWait).Microseconds(), false), nil
	default:
		have, t := l.take(hash, &r)
		return t.decide(have, &r), nil
	}
}

func (l *Limiter) leases(hash uint64) *leases { return &l.shards[hash>>l.shift].leases }

// Reset fills key's bucket and ends a block.
func (l *Limiter) Reset(_ context.Context, key limit.Key) error {
	hash := key.Hash(l.seed)
	l.leases(hash).drop(hash)
	l.shards[hash>>l.shift].fill(hash)
	return nil
}

// Block denies key for d; after that its bucket is full. A blocked key is never evicted, and
// has a bucket even if there is no room for one.
func (l *Limiter) Block(_ context.Context, key limit.Key, d time.Duration) error {
	if err := adapter.CheckBlock(d); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	hash := key.Hash(l.seed)
	l.leases(hash).drop(hash)
	l.shards[hash>>l.shift].block(hash, l.clock()+d.Microseconds(), l)
	return nil
}

// Stats returns how many buckets there are, and how many keys were evicted or overflowed. It
// locks each of up to 64 shards for a moment.
func (l *Limiter) Stats() adapter.Stats {
	var stats adapter.Stats
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
