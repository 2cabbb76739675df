package memory

import (
	"fmt"
	"hash/maphash"
	"maps"
	"sync"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// A recordTable keeps a record of type R for each of a bounded number of keys. A record is found by a
// 64-bit hash of its key with a random seed, so that long keys take no more memory than short ones.
// Two of n keys share a record with a probability below n²/2⁶⁵.
//
// The table evicts only idle records, which are equal to those of unused keys. While it cannot evict
// any, all new keys of a shard share one overflow record. A key that gets a record of its own
// later starts with a copy of it: otherwise it could spend both.
type recordTable[R any, P record[R]] struct {
	seed      maphash.Seed
	clock     func() int64 // in microseconds
	shardKeys int
	shards    [recordShards]recordShard[R, P]
}

// A record is what a limiter knows of a key. Its zero value is that of an unused key.
type record[R any] interface {
	*R
	idle(now int64) bool // reports whether the record is equal to the zero one; now is in microseconds
	clone() R
}

// A block is the time for which a key is denied, in microseconds.
type block struct{ began, ends int64 }

const (
	recordShards      = 64
	recordSweepMicros = 100_000
)

type recordShard[R any, P record[R]] struct {
	mu         sync.Mutex
	entries    map[uint64]P
	blocks     map[uint64]block
	sweptAt    int64 // when a full shard was last searched for idle records
	overflow   R     // shared by untracked keys: those for which there is no room
	evicted    int64
	overflowed int64

	_ [64]byte // keeps shards on different cache lines
}

func newRecordTable[R any, P record[R]](maxKeys int, clock func() int64) *recordTable[R, P] {
	t := &recordTable[R, P]{seed: maphash.MakeSeed(), clock: clock, shardKeys: maxKeys / recordShards}
	for i := range t.shards {
		t.shards[i].entries = map[uint64]P{}
		t.shards[i].sweptAt = -recordSweepMicros
	}
	return t
}

// numbers are what the policies of all kinds have.
type numbers struct {
	max     int64
	version int64 // among the policies of the limiter
}

// rules are those of a kind of limiter that keeps records, by one policy. Times are in
// microseconds.
type rules[P any] interface {
	// advance removes from a record what no longer counts.
	advance(r P, now int64)
	// consume takes a cost that can be allowed within a time, or nothing, and returns to what the
	// tokens belong. The record is that of the present.
	consume(r P, now, cost, maxWait int64) (d limit.Decision, stamp int64)
	// charge takes a cost in any case. The record is that of the present.
	charge(r P, now, cost int64)
	// giveBack returns tokens to a record of the present: those with a stamp, as far as they count, or
	// without one the newest.
	giveBack(r P, now, tokens int64, stamp *int64)
}

// takeRecord takes tokens of key by the rules k of a policy with the numbers n, as a valid take
// says. It calls observe, unless it is nil, with the record after the decision, while the key's
// shard is locked.
func takeRecord[R any, P record[R]](t *recordTable[R, P], k rules[P], n numbers, key *limit.Key, take *limit.Take, observe func(P)) (d limit.Decision) {
	if take.Mode >= mode.Charging {
		changeRecord(t, k, n, key, take)
		return limit.Decision{}
	}
	decide := func(r P, now int64) {
		k.advance(r, now)
		d = decideRecord(k, n, r, now, take)
		if observe != nil {
			observe(r)
		}
	}
	var blocked int64
	switch {
	case take.Mode == mode.Looking:
		blocked = t.read(key, func(r P, now int64) {
			k.advance(r, now)
			copied := r.clone()
			d = decideRecord(k, n, P(&copied), now, take)
		})
	case take.Cost == 0 || take.Mode == mode.Whole && take.Cost > n.max:
		blocked = t.read(key, decide)
	default:
		blocked = t.change(key, decide)
	}
	if blocked > 0 && take.Mode == mode.Partial {
		return n.blockedDecision(blocked, 0)
	} else if blocked > 0 {
		return n.blockedDecision(blocked, take.Cost)
	}
	return d
}

// blockedDecision returns the Decision about a cost of a key that stays blocked for some microseconds.
func (n numbers) blockedDecision(left, cost int64) limit.Decision {
	d := limit.Decision{Limit: n.max, RetryAfter: micros(left), ResetAfter: micros(left), Reason: limit.Blocked}
	if cost > n.max {
		d.RetryAfter = limit.Never
	}
	return d
}

func decideRecord[P any](k rules[P], n numbers, r P, now int64, take *limit.Take) limit.Decision {
	cost, granted := take.Cost, int64(0)
	if take.Mode == mode.Partial {
		holds, _ := k.consume(r, now, 0, 0)
		granted = min(cost, holds.Remaining)
		cost = max(granted, min(cost, 1))
	}
	d, stamp := k.consume(r, now, cost, take.MaxWait.Microseconds())
	d.Granted = granted
	if take.Receipt && take.Mode != mode.Looking && d.Allowed && cost > 0 {
		d.Receipt = limit.Receipt{Tokens: cost, Stamp: stamp, Version: n.version}
	}
	return d
}

// changeRecord executes a take of key that is never denied.
func changeRecord[R any, P record[R]](t *recordTable[R, P], k rules[P], n numbers, key *limit.Key, take *limit.Take) {
	tokens, stamp := take.Cost, (*int64)(nil)
	if take.Mode == mode.Undoing {
		receipt := take.Undone()
		if receipt.Version != n.version {
			return
		}
		tokens, stamp = receipt.Tokens, &receipt.Stamp
	}
	if tokens <= 0 {
		return
	}
	t.change(key, func(r P, now int64) {
		k.advance(r, now)
		if take.Mode == mode.Charging {
			k.charge(r, now, tokens)
			return
		}
		k.giveBack(r, now, tokens, stamp)
	})
}

// checkPolicy returns an error unless a policy can replace one of a limiter.
func checkPolicy(invalid error, name, currentName string) error {
	switch {
	case invalid != nil:
		return fmt.Errorf("memory: %w", invalid)
	case name != currentName:
		return fmt.Errorf("memory: the policy is named %q; it must keep the name %q", name, currentName)
	default:
		return nil
	}
}

// change calls f with the record of key, which f may change, and the time. It adds a record for a
// new key if there is room. The key's shard is locked meanwhile. If the key is blocked, it returns for how
// long, and does not call f.
func (t *recordTable[R, P]) change(key *limit.Key, f func(r P, now int64)) (blocked int64) {
	s, hash := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := t.clock() // after Lock: calls for a key are in the order of their times
	if left := s.blockLeft(hash, now); left > 0 {
		return left
	}
	r := s.entries[hash]
	switch {
	case r != nil:
	case len(s.entries) >= t.shardKeys && !s.sweep(now, t.shardKeys):
		s.overflowed++
		r = &s.overflow
	default:
		r = s.copyOfOverflow(now)
		s.entries[hash] = r
	}
	f(r, now)
	return 0
}

// read calls f with the record of key, or of a new key, and the time. Changes that f makes have no
// effect, except that it may remove what has expired. If the key is blocked, it returns for how long, and
// does not call f.
func (t *recordTable[R, P]) read(key *limit.Key, f func(r P, now int64)) (blocked int64) {
	s, hash := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := t.clock()
	if left := s.blockLeft(hash, now); left > 0 {
		return left
	}
	r := s.entries[hash]
	if r == nil {
		r = s.copyOfOverflow(now)
	}
	f(r, now)
	return 0
}

// blockLeft returns how long a key is still blocked, at most 0 if it is not. A clock that went backwards
// does not extend a block.
func (s *recordShard[R, P]) blockLeft(hash uint64, now int64) int64 {
	b, ok := s.blocks[hash]
	if !ok {
		return 0
	}
	if now < b.began {
		b = block{now, now + b.ends - b.began}
		s.blocks[hash] = b
	}
	if b.ends <= now {
		delete(s.blocks, hash)
	}
	return b.ends - now
}

// block denies key for d. Its record is then that of an unused key.
func (t *recordTable[R, P]) block(key *limit.Key, d time.Duration) error {
	if err := adapter.CheckBlock(d); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	t.reset(key)
	s, hash := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := t.clock()
	maps.DeleteFunc(s.blocks, func(_ uint64, b block) bool { return b.began <= now && b.ends <= now })
	if s.blocks == nil {
		s.blocks = map[uint64]block{}
	}
	s.blocks[hash] = block{now, now + d.Microseconds()}
	return nil
}

// reset makes the record of key that of an unused key, and ends a block.
func (t *recordTable[R, P]) reset(key *limit.Key) {
	s, hash := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.blocks, hash)
	switch {
	case P(&s.overflow).idle(t.clock()):
		delete(s.entries, hash)
	case s.entries[hash] != nil || len(s.entries) < t.shardKeys:
		s.entries[hash] = new(R) // without a record, the key would get a copy of the overflow record
	default:
		s.overflow = *new(R)
	}
}

func (t *recordTable[R, P]) resetAll() {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		clear(s.entries)
		clear(s.blocks)
		s.overflow = *new(R)
		s.mu.Unlock()
	}
}

func (t *recordTable[R, P]) stats() adapter.Stats {
	var stats adapter.Stats
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		stats.Keys += int64(len(s.entries))
		stats.Evicted += s.evicted
		stats.Overflowed += s.overflowed
		s.mu.Unlock()
	}
	return stats
}

func (t *recordTable[R, P]) shard(key *limit.Key) (s *recordShard[R, P], hash uint64) {
	hash = key.Hash(t.seed)
	return &t.shards[hash%recordShards], hash
}

func (s *recordShard[R, P]) copyOfOverflow(now int64) P {
	if P(&s.overflow).idle(now) {
		return new(R)
	}
	r := P(&s.overflow).clone()
	return &r
}

// sweep evicts idle records and reports whether there is room. A flood of new keys must not sweep
// the shard at every call.
func (s *recordShard[R, P]) sweep(now int64, maxKeys int) bool {
	if since := now - s.sweptAt; since >= 0 && since < recordSweepMicros {
		return false
	}
	s.sweptAt = now
	for hash, r := range s.entries {
		if r.idle(now) {
			delete(s.entries, hash)
			s.evicted++
		}
	}
	return len(s.entries) < maxKeys
}
