package memory

import (
	"container/heap"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/limit"
)

// Leases keeps the leases of a limiter's keys. A bucket does not contain its leases, so that it stays
// one number, and a limiter without leases pays for one load.
//
// The limiter applies the leases that have ended before it decides: a bucket that is full at the end of
// a lease gets nothing, and in any other the tokens return as if they had been returned then, because
// a bucket is the time at which it will be full.
type leases struct {
	next atomic.Int64 // when the first lease ends, in microseconds, or never

	// mu is locked before that of a shard. A call that takes or settles a lease holds it.
	mu    sync.Mutex
	ends  leaseHeap
	byKey map[uint64]map[int64]*lease // by hash and identifier
}

// A lease is a Take of a key with a hash. Times are in microseconds since the limiter was created.
type lease struct {
	receipt limit.Receipt
	hash    uint64
	ends    int64
	settled bool // its end returns nothing
}

const never = math.MaxInt64

func (s *leases) init() {
	s.byKey = map[uint64]map[int64]*lease{}
	s.next.Store(never)
}

// end applies the leases that have ended.
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
		if !e.settled {
			l.take(e.hash, &request{kind: undo, undo: &undoing{e.receipt, e.receipt.Tokens, e.ends}})
		}
		if ofKey := s.byKey[e.hash]; ofKey[e.receipt.Lease] == e {
			delete(ofKey, e.receipt.Lease)
			if len(ofKey) == 0 {
				delete(s.byKey, e.hash)
			}
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

// waitLocked returns how long a key has to wait until it may have one more lease.
func (s *leases) waitLocked(hash uint64, l *Limiter) time.Duration {
	ofKey := s.byKey[hash]
	if len(ofKey) < limit.MaxLeases {
		return 0
	}
	first := int64(never)
	for _, e := range ofKey {
		first = min(first, e.ends)
	}
	return micros(first - l.clock())
}

// addLocked adds a lease of what a receipt says, and completes the receipt.
func (s *leases) addLocked(hash uint64, receipt *limit.Receipt, length time.Duration) {
	ofKey := s.byKey[hash]
	if ofKey == nil {
		ofKey = map[int64]*lease{}
		s.byKey[hash] = ofKey
	}
	for receipt.Lease == 0 || ofKey[receipt.Lease] != nil {
		receipt.Lease = random.N[int64](1 << 53)
	}
	e := &lease{receipt: *receipt, hash: hash, ends: receipt.Stamp + length.Microseconds()}
	ofKey[receipt.Lease] = e
	heap.Push(&s.ends, e)
	s.nextLocked()
}

// drop forgets the leases of a key whose bucket is filled or blocked.
func (s *leases) drop(hash uint64) {
	if s.next.Load() == never {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.byKey[hash] {
		e.settled = true
	}
	delete(s.byKey, hash)
}

// takeLeased is Take with a Lease.
func (l *Limiter) takeLeased(hash uint64, r *request, length time.Duration) limit.Decision {
	s := &l.leases
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(l)
	if wait := s.waitLocked(hash, l); wait > 0 {
		return l.denyLease(hash, r, wait)
	}
	have, t := l.take(hash, r)
	d := t.decision(have, r)
	if d.Allowed && r.tokens > 0 {
		d.Receipt = t.receipt(r, &d)
		s.addLocked(hash, &d.Receipt, length)
	}
	return d
}

// denyLease returns the denial of a request of a key that has as many leases as it may.
func (l *Limiter) denyLease(hash uint64, r *request, wait time.Duration) limit.Decision {
	r.kind = look
	have, t := l.take(hash, r)
	d := t.decision(have, r)
	if d.Allowed {
		d = t.decision(have, &request{kind: look})
		d.Allowed = false
	}
	d.RetryAfter = max(d.RetryAfter, wait)
	return d
}

// settle replaces what the Take with a receipt took by what it has used.
func (l *Limiter) settle(hash uint64, receipt limit.Receipt, used int64) {
	s := &l.leases
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(l)
	e := s.byKey[hash][receipt.Lease]
	switch {
	case e == nil:
		l.take(hash, &request{kind: charge, tokens: used})
	case e.settled:
	case used > e.receipt.Tokens:
		l.take(hash, &request{kind: charge, tokens: used - e.receipt.Tokens})
	default:
		l.take(hash, &request{kind: undo, undo: &undoing{e.receipt, e.receipt.Tokens - used, 0}})
	}
	if e != nil {
		e.settled = true
	}
}

// A leaseHeap orders leases by their ends.
type leaseHeap []*lease

func (h leaseHeap) Len() int { return len(h) }

// Less reports whether lease i ends before lease j.
func (h leaseHeap) Less(i, j int) bool { return h[i].ends < h[j].ends }

func (h leaseHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *leaseHeap) Push(e any) { *h = append(*h, e.(*lease)) }

func (h *leaseHeap) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	return last
}
