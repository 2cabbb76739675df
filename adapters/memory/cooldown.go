package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// A Cooldown is a [ratelimit.Limiter] that keeps a [ratelimit.CooldownPolicy] in this
// process. Its Decisions have the policy's Max as Limit, and as Reason whether a
// penalty starts or lasts. A cost counts as so many; one above Max is denied for good
// and not punished.
//
// It keeps up to 65,536 keys, each with 8 bytes for each of its last Max. Keys of which
// nothing counts any more are dropped. Where none can be dropped, new keys share one.
type Cooldown struct {
	policy    ratelimit.CooldownPolicy
	onPenalty func(ratelimit.Penalty)
	seed      maphash.Seed
	epoch     time.Time
	shards    [cooldownShards]cooldownShard
}

var _ ratelimit.Local = (*Cooldown)(nil)

const (
	cooldownShards    = 64
	cooldownShardKeys = 1024
)

type cooldownShard struct {
	mu      sync.Mutex
	entries map[ratelimit.Key]*cooldownEntry
	sweepAt time.Duration
	shared  cooldownEntry // of keys for which there is no room
	evicted int64
	crowded int64

	_ [64]byte // keeps shards on different cache lines
}

// A cooldownEntry is what counts of a key. Times are since the epoch.
type cooldownEntry struct {
	stamps []time.Duration // when what was admitted came, oldest first; those in the window
	until  time.Duration   // the penalty lasts
}

// NewCooldown returns a cooldown. OnPenalty, which may be nil, is called once for every
// penalty that starts, and must return soon. It panics if the policy is not valid.
func NewCooldown(policy ratelimit.CooldownPolicy, onPenalty func(ratelimit.Penalty)) *Cooldown {
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	c := &Cooldown{policy: policy, onPenalty: onPenalty, seed: maphash.MakeSeed(), epoch: time.Now()}
	for i := range c.shards {
		c.shards[i].entries = map[ratelimit.Key]*cooldownEntry{}
	}
	return c
}

// Local marks a limiter that decides in this process.
func (c *Cooldown) Local() {}

// Consume counts cost of key, or none of it. It ignores its context: it never waits.
func (c *Cooldown) Consume(_ context.Context, key ratelimit.Key, cost int64) (ratelimit.Decision, error) {
	if cost < 0 {
		return ratelimit.Decision{}, fmt.Errorf("memory: cost is %d; it must not be negative", cost)
	}
	s := c.shard(&key)
	s.mu.Lock()
	now := c.now()
	e := s.entry(key, now, &c.policy)
	count := int64(len(e.stamps)) + cost
	d := e.consume(now, cost, &c.policy)
	s.mu.Unlock()
	if d.Reason == ratelimit.BurstExceeded && c.onPenalty != nil {
		c.onPenalty(ratelimit.Penalty{Policy: c.policy, Key: key, Count: count, RetryAfter: d.RetryAfter})
	}
	return d, nil
}

// Count returns how many of key count in the window that ends now.
func (c *Cooldown) Count(_ context.Context, key ratelimit.Key) (int64, error) {
	s := c.shard(&key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := c.now()
	e := s.look(key)
	e.forget(now, &c.policy)
	return int64(len(e.stamps)), nil
}

// Reset forgets what counts of key, and its penalty.
func (c *Cooldown) Reset(_ context.Context, key ratelimit.Key) error {
	s := c.shard(&key)
	s.mu.Lock()
	defer s.mu.Unlock()
	*s.look(key) = cooldownEntry{}
	delete(s.entries, key)
	return nil
}

// ResetAll forgets everything.
func (c *Cooldown) ResetAll(context.Context) error {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		clear(s.entries)
		s.shared = cooldownEntry{}
		s.mu.Unlock()
	}
	return nil
}

// Stats returns how many keys there are, and what became of others. It takes each of 64
// locks for a moment.
func (c *Cooldown) Stats() ratelimit.Stats {
	var stats ratelimit.Stats
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		stats.Keys += int64(len(s.entries))
		stats.Evicted += s.evicted
		stats.Crowded += s.crowded
		s.mu.Unlock()
	}
	return stats
}

func (c *Cooldown) now() time.Duration { return time.Since(c.epoch).Truncate(time.Microsecond) }

func (c *Cooldown) shard(key *ratelimit.Key) *cooldownShard {
	return &c.shards[key.Hash(c.seed)%cooldownShards]
}

// look returns what is known of key, and does not keep it. Keys without room share one.
func (s *cooldownShard) look(key ratelimit.Key) *cooldownEntry {
	switch e := s.entries[key]; {
	case e != nil:
		return e
	case len(s.entries) >= cooldownShardKeys:
		return &s.shared
	default:
		return &cooldownEntry{}
	}
}

// entry returns what is known of key, which may be nothing.
func (s *cooldownShard) entry(key ratelimit.Key, now time.Duration, p *ratelimit.CooldownPolicy) *cooldownEntry {
	e := s.entries[key]
	if e == nil {
		if len(s.entries) >= cooldownShardKeys && !s.sweep(now, p) {
			e = &s.shared
			s.crowded++
		} else {
			e = &cooldownEntry{}
			s.entries[key] = e
		}
	}
	e.forget(now, p)
	return e
}

// sweep drops the keys of which nothing counts any more, and reports whether there is
// room then. A flood of new keys must not make it look again at every one.
func (s *cooldownShard) sweep(now time.Duration, p *ratelimit.CooldownPolicy) bool {
	if now < s.sweepAt {
		return false
	}
	s.sweepAt = now + 100*time.Millisecond
	for key, e := range s.entries {
		if e.forget(now, p); len(e.stamps) == 0 && e.until <= now {
			delete(s.entries, key)
			s.evicted++
		}
	}
	return len(s.entries) < cooldownShardKeys
}

// forget drops what came a window ago, or earlier.
func (e *cooldownEntry) forget(now time.Duration, p *ratelimit.CooldownPolicy) {
	n := 0
	for n < len(e.stamps) && e.stamps[n] <= now-p.Window {
		n++
	}
	if e.stamps = slices.Delete(e.stamps, 0, n); len(e.stamps) == 0 {
		e.stamps = nil
	}
}

func (e *cooldownEntry) consume(now time.Duration, cost int64, p *ratelimit.CooldownPolicy) ratelimit.Decision {
	lasts := e.until > now
	count := int64(len(e.stamps))
	d := ratelimit.Decision{Limit: p.Max}
	switch {
	case cost > p.Max:
		d.RetryAfter = ratelimit.Never
	case cost == 0, !lasts && count+cost <= p.Max:
		d.Allowed = true
		for range cost {
			e.stamps = append(e.stamps, now)
		}
	case lasts:
		d.Reason = ratelimit.InCooldown
		d.RetryAfter = e.room(cost, p) - now
	default:
		d.Reason = ratelimit.BurstExceeded
		e.until = now + p.Penalty
		e.until = e.room(cost, p)
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

// room returns when cost can be admitted: after the penalty, and not before enough has
// left the window.
func (e *cooldownEntry) room(cost int64, p *ratelimit.CooldownPolicy) time.Duration {
	tooMany := int64(len(e.stamps)) + cost - p.Max
	if tooMany <= 0 {
		return e.until
	}
	return max(e.until, e.stamps[tooMany-1]+p.Window)
}
