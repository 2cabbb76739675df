package memory

import (
	"container/heap"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// Leases keeps the leases and the receipts of the keys of a shard. A bucket does not contain its
// leases, so that it stays one number, and a shard without leases pays for two loads.
//
// The limiter applies the leases that have ended before it decides: a bucket that is full at the end of
// a lease gets nothing, and in any other the tokens return as if they had been returned then, because
// a bucket is the time at which it will be full.
type leases struct {
	next  atomic.Int64 // when the first lease ends, in microseconds, or never
	added atomic.Int64 // how many leases were added, before their tokens were taken

	// mu is locked before that of a shard. A call for a key with leases holds it.
	mu    sync.Mutex
	ends  leaseHeap
	byKey map[uint64]*keyLeases // by hash
}

const never = math.MaxInt64

func (s *leases) init() {
	s.byKey = map[uint64]*keyLeases{}
	s.next.Store(never)
}

// end applies the leases of a shard that have ended.
func (s *leases) end(l *Limiter) {
	if s.next.Load() > l.clock() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(l)
}

func (s *leases) endLocked(l *Limiter) {
	for now := l.clock(); len(s.ends) > 0 && s.ends[0].ends <= now; {
		e := heap.Pop(&s.ends).(*lease)
		k := s.byKey[e.hash]
		if !e.settled && !e.isMark() {
			s.giveBackLocked(l, k, e, e.receipt.Tokens, e.ends)
		}
		if k.remove(e); k.isEmpty() {
			delete(s.byKey, e.hash)
		}
	}
	s.nextLocked()
}

func (s *leases) nextLocked() {
	next := int64(never)
	if len(s.ends) > 0 {
		next = s.ends[0].ends
	}
	s.next.Store(next)
}

// takeTracked makes a request about a key with leases, and records what its bucket was missing. It
// returns false if the key has none.
func (s *leases) takeTracked(hash uint64, r *request, l *Limiter) (have int64, t *table, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(l)
	k := s.byKey[hash]
	if k == nil {
		return 0, nil, false
	}
	r.tracked = true
	have, t = l.take(hash, r)
	k.lower(r.before(have, t))
	return have, t, true
}

// giveBackLocked returns tokens of a lease of a key, as if they had been returned at a time that is not
// in the future: nothing has changed the bucket since.
func (s *leases) giveBackLocked(l *Limiter, k *keyLeases, e *lease, tokens, at int64) {
	r := request{kind: look, tracked: true}
	have, t := l.take(e.hash, &r)
	missing := t.units.Full() - have
	if have <= blocked || missing == 0 {
		k.lowerAll(0)
		return
	}
	missing += max(r.at-at*t.units.PerMicro(), 0)
	k.lowerAll(missing)
	units := t.units.RefundUnits(tokens)
	switch {
	case e.receipt.Version != t.version:
		return
	case e.low == untracked:
		left := t.units.UndoUnits(e.receipt.Tokens, micros(at-e.receipt.Stamp))
		units = k.giveBackUntracked(min(units, left, missing))
	default:
		units = k.giveBack(units, e.low)
	}
	l.take(e.hash, &request{kind: give, gives: units, tracked: true})
}

// undo returns what the Take with a receipt took.
func (s *leases) undo(l *Limiter, hash uint64, receipt limit.Receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(l)
	k := s.byKey[hash]
	if k == nil {
		k = &keyLeases{low: never}
	}
	e := k.markOf(receipt)
	if e == nil || e.low == untracked {
		e = &lease{receipt: receipt, hash: hash, low: untracked} // it was long ago, or the bucket was full
	}
	s.giveBackLocked(l, k, e, receipt.Tokens, l.clock())
}

// waitLocked returns how long a key has to wait until it may have one more lease.
func (s *leases) waitLocked(hash uint64, l *Limiter) time.Duration {
	k := s.byKey[hash]
	if k == nil || len(k.open) < adapter.MaxLeases {
		return 0
	}
	first := int64(never)
	for _, e := range k.open {
		first = min(first, e.ends)
	}
	return micros(first - l.clock())
}

// prepareLocked makes sure that calls for a key are tracked from now on. A caller adds a lease if its take is
// allowed, and calls cleanLocked.
func (s *leases) prepareLocked(hash uint64) {
	if s.byKey[hash] == nil {
		s.byKey[hash] = &keyLeases{low: never}
	}
	s.added.Add(1)
	if s.next.Load() == never {
		s.next.Store(never - 1) // so that calls look
	}
}

// cleanLocked ends what prepareLocked began.
func (s *leases) cleanLocked(hash uint64) {
	if k := s.byKey[hash]; k != nil && k.isEmpty() {
		delete(s.byKey, hash)
	}
	s.nextLocked()
}

// addLocked adds a lease or a mark of what a receipt says, and completes the receipt. The bucket was
// missing some units before. The length is in microseconds.
func (s *leases) addLocked(hash uint64, receipt *limit.Receipt, length, missing int64, isLease bool) {
	k := s.byKey[hash]
	for isLease && (receipt.Lease == 0 || k.find(receipt.Lease) != nil) {
		receipt.Lease = random.N[int64](1 << 53)
	}
	k.lowerAll(max(missing, 0))
	e := &lease{receipt: *receipt, hash: hash, ends: receipt.Stamp + length, low: never}
	if missing == untracked {
		e.low = untracked
	}
	if isLease {
		k.open = append(k.open, e)
		heap.Push(&s.ends, e)
		return
	}
	forgotten, added := k.addMark(e)
	for _, m := range forgotten {
		heap.Remove(&s.ends, m.index)
	}
	if added {
		heap.Push(&s.ends, e)
	}
}

// drop forgets the leases of a key whose bucket is filled or blocked.
func (s *leases) drop(hash uint64) {
	if s.next.Load() == never {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byKey[hash]
	if k == nil {
		return
	}
	delete(s.byKey, hash)
	for _, all := range [][]*lease{k.open, k.marks, k.settled} {
		for _, e := range all {
			heap.Remove(&s.ends, e.index)
		}
	}
	s.nextLocked()
}

// takeLeased is Take with a Lease or a receipt, for a length in microseconds.
func (s *leases) takeLeased(l *Limiter, hash uint64, r *request, length int64, isLease bool) (d limit.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(l)
	if wait := s.waitLocked(hash, l); isLease && wait > 0 {
		return l.denyLease(hash, r, wait)
	}
	s.prepareLocked(hash)
	defer s.cleanLocked(hash)
	r.tracked = true
	have, t := l.take(hash, r)
	d = t.decide(have, r)
	if d.Allowed && r.kind != look && r.tokens > 0 {
		d.Receipt = t.receipt(r)
		s.addLocked(hash, &d.Receipt, length, r.before(have, t), isLease)
	}
	return d
}

// settle replaces what the Take with a receipt took by what it has used.
func (s *leases) settle(l *Limiter, hash uint64, receipt limit.Receipt, used int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(l)
	k := s.byKey[hash]
	e := k.find(receipt.Lease)
	switch {
	case e == nil:
		l.chargeLocked(k, hash, used)
		return
	case e.settled:
		return
	case used > e.receipt.Tokens:
		l.chargeLocked(k, hash, used-e.receipt.Tokens)
	default:
		s.giveBackLocked(l, k, e, e.receipt.Tokens-used, l.clock())
	}
	if forgotten := k.settle(e); forgotten != nil {
		heap.Remove(&s.ends, forgotten.index)
	}
}

// chargeLocked charges a key whose leases are locked.
func (l *Limiter) chargeLocked(k *keyLeases, hash uint64, tokens int64) {
	r := request{kind: charge, tokens: tokens, tracked: true}
	have, t := l.take(hash, &r)
	k.lower(r.before(have, t))
}

// denyLease returns the denial of a request of a key that has as many leases as it may.
func (l *Limiter) denyLease(hash uint64, r *request, wait time.Duration) limit.Decision {
	r.kind, r.tracked = look, true
	have, t := l.take(hash, r)
	d := t.decision(have, r)
	if d.Allowed {
		d = t.decision(have, &request{kind: look})
		d.Allowed = false
	}
	d.RetryAfter = max(d.RetryAfter, wait)
	return d
}

// A leaseHeap orders leases by their ends.
type leaseHeap []*lease

func (h leaseHeap) Len() int { return len(h) }

// Less reports whether lease i ends before lease j.
func (h leaseHeap) Less(i, j int) bool { return h[i].ends < h[j].ends }

func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *leaseHeap) Push(e any) {
	e.(*lease).index = len(*h)
	*h = append(*h, e.(*lease))
}

func (h *leaseHeap) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	return last
}
