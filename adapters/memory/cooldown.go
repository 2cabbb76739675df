package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A Cooldown is a [limit.Limiter] that enforces a [limit.CooldownPolicy] in this process. Its
// decisions have Max as Limit, and a Reason that says whether the call starts a penalty or
// meets one. A cost counts as that many calls; a cost above Max is denied with
// [limit.Never] and starts no penalty.
//
// It keeps up to 65,536 keys, each with 8 bytes for each of its last Max calls, and evicts keys
// without calls in the window and without penalty. If it cannot evict any, new keys share one
// record.
type Cooldown struct {
	policy    limit.CooldownPolicy
	onPenalty func(limit.Penalty)
	seed      maphash.Seed
	epoch     time.Time
	shards    [cooldownShards]cooldownShard
}

var _ limit.InProcess = (*Cooldown)(nil)

const (
	cooldownShards    = 64
	cooldownShardKeys = 1024
	cooldownSweepTime = 100 * time.Millisecond
)

type cooldownShard struct {
	mu         sync.Mutex
	entries    map[limit.Key]*cooldownEntry
	sweepAt    time.Duration
	overflow   cooldownEntry // shared by untracked keys: those for which there is no room
	evicted    int64
	overflowed int64

	_ [64]byte // keeps shards on different cache lines
}

// A cooldownEntry is the record of a key. Times are since the cooldown's epoch.
type cooldownEntry struct {
	stamps []time.Duration // of admitted calls in the window, oldest first
	until  time.Duration   // end of the penalty
}

// NewCooldown returns a cooldown. It calls onPenalty, which may be nil and must return soon,
// once for every penalty that starts. NewCooldown panics if the policy is not valid.
func NewCooldown(policy limit.CooldownPolicy, onPenalty func(limit.Penalty)) *Cooldown {
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	c := &Cooldown{policy: policy, onPenalty: onPenalty, seed: maphash.MakeSeed(), epoch: time.Now()}
	for i := range c.shards {
		c.shards[i].entries = map[limit.Key]*cooldownEntry{}
	}
	return c
}

// InProcess marks a limiter that decides in this process.
func (c *Cooldown) InProcess() {}

// Consume counts cost calls of key, or none of them. It ignores its context, because it never
// waits.
func (c *Cooldown) Consume(_ context.Context, key limit.Key, cost int64) (limit.Decision, error) {
	if cost < 0 {
		return limit.Decision{}, fmt.Errorf("memory: cost is %d; it must not be negative", cost)
	}
	s := c.shard(&key)
	s.mu.Lock()
	now := c.now()
	e := s.entry(key, now, &c.policy)
	count := int64(len(e.stamps)) + cost
	d := e.consume(now, cost, &c.policy)
	s.mu.Unlock()
	if d.Reason == limit.BurstExceeded && c.onPenalty != nil {
		c.onPenalty(limit.Penalty{Policy: c.policy, Key: key, Count: count, RetryAfter: d.RetryAfter})
	}
	return d, nil
}

// Count returns how many admitted calls of key are in the window that ends at present.
func (c *Cooldown) Count(_ context.Context, key limit.Key) (int64, error) {
	s := c.shard(&key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := c.now()
	e := s.lookup(key)
	e.expire(now, &c.policy)
	return int64(len(e.stamps)), nil
}

// Reset removes the record of key: its calls and its penalty.
func (c *Cooldown) Reset(_ context.Context, key limit.Key) error {
	s := c.shard(&key)
	s.mu.Lock()
	defer s.mu.Unlock()
	*s.lookup(key) = cooldownEntry{}
	delete(s.entries, key)
	return nil
}

// ResetAll removes the records of all keys.
func (c *Cooldown) ResetAll(context.Context) error {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		clear(s.entries)
		s.overflow = cooldownEntry{}
		s.mu.Unlock()
	}
	return nil
}

// Stats returns how many keys there are, and how many were evicted or overflowed. It locks each
// of 64 shards for a moment.
func (c *Cooldown) Stats() limit.Stats {
	var stats limit.Stats
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		stats.Keys += int64(len(s.entries))
		stats.Evicted += s.evicted
		stats.Overflowed += s.overflowed
		s.mu.Unlock()
	}
	return stats
}

func (c *Cooldown) now() time.Duration { return time.Since(c.epoch).Truncate(time.Microsecond) }

func (c *Cooldown) shard(key *limit.Key) *cooldownShard {
	return &c.shards[key.Hash(c.seed)%cooldownShards]
}

// lookup returns the record of key without adding one: that of the untracked keys if the shard
// is full, or else an empty one.
func (s *cooldownShard) lookup(key limit.Key) *cooldownEntry {
	switch e := s.entries[key]; {
	case e != nil:
		return e
	case len(s.entries) >= cooldownShardKeys:
		return &s.overflow
	default:
		return &cooldownEntry{}
	}
}

// entry returns the record of key, and adds one for a new key if there is room.
func (s *cooldownShard) entry(key limit.Key, now time.Duration, p *limit.CooldownPolicy) *cooldownEntry {
	e := s.entries[key]
	if e == nil {
		if len(s.entries) >= cooldownShardKeys && !s.sweep(now, p) {
			e = &s.overflow
			s.overflowed++
		} else {
			e = &cooldownEntry{}
			s.entries[key] = e
		}
	}
	e.expire(now, p)
	return e
}

// sweep evicts keys without calls in the window and without penalty, and reports whether there
// is room. A flood of new keys must not sweep the shard at every call.
func (s *cooldownShard) sweep(now time.Duration, p *limit.CooldownPolicy) bool {
	if now < s.sweepAt {
		return false
	}
	s.sweepAt = now + cooldownSweepTime
	for key, e := range s.entries {
		if e.expire(now, p); len(e.stamps) == 0 && e.until <= now {
			delete(s.entries, key)
			s.evicted++
		}
	}
	return len(s.entries) < cooldownShardKeys
}

// expire removes the calls that are a window old or older.
func (e *cooldownEntry) expire(now time.Duration, p *limit.CooldownPolicy) {
	n := 0
	for n < len(e.stamps) && e.stamps[n] <= now-p.Window {
		n++
	}
	if e.stamps = slices.Delete(e.stamps, 0, n); len(e.stamps) == 0 {
		e.stamps = nil
	}
}

func (e *cooldownEntry) consume(now time.Duration, cost int64, p *limit.CooldownPolicy) limit.Decision {
	inPenalty := e.until > now
	count := int64(len(e.stamps))
	d := limit.Decision{Limit: p.Max}
	switch {
	case cost > p.Max:
		d.RetryAfter = limit.Never
	case cost == 0, !inPenalty && count+cost <= p.Max:
		d.Allowed = true
		for range cost {
			e.stamps = append(e.stamps, now)
		}
	case inPenalty:
		d.Reason = limit.InCooldown
		d.RetryAfter = e.admitsAt(cost, p) - now
	default:
		d.Reason = limit.BurstExceeded
		e.until = now + p.Penalty
		e.until = e.admitsAt(cost, p)
		d.RetryAfter = e.until - now
	}
	if e.until <= now {
		d.Remaining = p.Max - int64(len(e.stamps))
	}
	d.ResetAfter = e.until - now
	if n := len(e.stamps); n > 0 {
		d.ResetAfter = max(d.ResetAfter, e.stamps[n-1]+p.Window-now)
	}
	d.ResetAfter = max(d.ResetAfter, 0)
	return d
}

// admitsAt returns when cost can be admitted: after the penalty, and once enough calls have
// left the window.
func (e *cooldownEntry) admitsAt(cost int64, p *limit.CooldownPolicy) time.Duration {
	excess := int64(len(e.stamps)) + cost - p.Max
	if excess <= 0 {
		return e.until
	}
	return max(e.until, e.stamps[excess-1]+p.Window)
}
