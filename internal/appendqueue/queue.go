// Package appendqueue stores the publications of a node in few round trips to a store of histories,
// and waits until they are as durable as they must be. A type parameter K is what the store keeps with
// each of them, such as the names of its keys.
//
// Queue.mu and confirmQueue.mu are never held together, nor while a function of the store runs.
package appendqueue

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A Queue stores publications in few round trips. Publications of a partition that wait
// while others of it are in flight share the next script call, in the order in which they came.
// Partitions of the same path share round trips. A partition with publications belongs to one
// sender until it is empty, so that at most one call of it is in flight, even if its path changes.
//
// Each sender with publications has a goroutine, run. Everything is guarded by mu, which is not held
// while exec runs.
type Queue[K any] struct {
	exec     func(context.Context, []*Batch[K]) // sets the results of all calls
	path     func(partition int) string
	confirms *confirmQueue[K] // continues with calls that have a Durability

	mu         sync.Mutex
	partitions map[int]*partition[K]
	senders    map[senderKey]*sender[K]
	closed     bool
	running    sync.WaitGroup // of the goroutines
}

// A Call is one publication.
type Call[K any] struct {
	broker.Append
	Keys   K
	Result broker.Appended // set by exec
	Err    error           // set by exec; nil if the store has the publication

	ctx       context.Context //nolint:containedctx // of the caller, who waits
	partition int
	bytes     int
	state     callState
	done      chan struct{} // closed when Result or Err is final
	confirm   *confirmState // nil without a Durability
}

// IsDurable reports whether the call has a Durability.
func (c *Call[K]) IsDurable() bool { return c.confirm != nil }

// SetLineage says which server has executed the call: a name that no other one ever has.
func (c *Call[K]) SetLineage(lineage string) {
	if c.confirm != nil {
		c.confirm.lineage = lineage
	}
}

type callState byte

const (
	callWaiting callState = iota
	callSent
	callAbandoned // never sent
)

// A Batch is one script call.
type Batch[K any] struct {
	Partition int
	Calls     []*Call[K]
	IsDurable bool // some of the calls have a Durability

	from *partition[K]
}

type partition[K any] struct {
	number  int
	waiting []*Call[K]
	sender  *sender[K] // nil while nothing waits and nothing is in flight
}

// A senderKey is a path and, since one round trip at a time would leave the server idle while this
// process handles the results, one of two halves of the partitions.
type senderKey struct {
	path string
	half int
}

type sender[K any] struct {
	ready   []*partition[K]
	running bool
}

const (
	maxBatchCalls     = 128 // of one script call: the server does nothing else meanwhile
	maxBatchBytes     = 1 << 20
	maxRoundTripCalls = 1024
	maxRoundTripBytes = 4 << 20
	callOverhead      = 128 // bytes in addition to the packet
)

// New returns a queue. path returns the address of the store of a partition, exec executes script calls
// in one round trip, and confirm asks the store of a partition for a confirmation.
func New[K any](path func(partition int) string, exec func(context.Context, []*Batch[K]), confirm func(d broker.Durability, partition int, limit time.Duration) Confirmation) *Queue[K] {
	return &Queue[K]{exec: exec, path: path, confirms: newConfirmQueue[K](confirm), partitions: map[int]*partition[K]{}, senders: map[senderKey]*sender[K]{}}
}

// Do stores a publication. If its context is done before it is sent, it is never sent.
func (q *Queue[K]) Do(ctx context.Context, a broker.Append, partition int, keys K) (broker.Appended, error) {
	c := &Call[K]{
		Append: a, Keys: keys, ctx: ctx, partition: partition,
		bytes: len(a.Packet) + len(a.StateKey) + len(a.IdempotencyKey) + callOverhead,
	}
	if a.Durability != (broker.Durability{}) {
		c.confirm = &confirmState{}
	}
	return q.do(c)
}

func (q *Queue[K]) do(c *Call[K]) (broker.Appended, error) {
	ctx := c.ctx
	if !q.enqueue(c) {
		return broker.Appended{}, ErrClosed
	}
	select {
	case <-c.done:
		return c.Result, c.Err
	case <-ctx.Done():
	}
	if q.abandon(c) {
		return broker.Appended{}, ctx.Err()
	}
	select {
	case <-c.done: // meanwhile
		return c.Result, c.Err
	default:
	}
	if c.confirm != nil && c.confirm.stored.Load() {
		return broker.Appended{}, unconfirmed(ctx.Err())
	}
	return broker.Appended{}, unknownOutcome(ctx.Err())
}

// ErrClosed is the error after Close.
var ErrClosed = errors.Errorf(errors.Unavailable, "the node is closed")

func unknownOutcome(cause error) error {
	return &errors.Error{Code: broker.OutcomeUnknown, Message: "the publication may have been stored", Err: cause}
}

// enqueue returns false if the queue is closed.
func (q *Queue[K]) enqueue(c *Call[K]) bool {
	c.done = make(chan struct{})
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	p := q.partitions[c.partition]
	if p == nil {
		p = &partition[K]{number: c.partition}
		q.partitions[p.number] = p
	}
	p.waiting = append(p.waiting, c)
	if p.sender == nil {
		q.makeReadyLocked(p)
	}
	return true
}

// abandon returns false if the call was sent.
func (q *Queue[K]) abandon(c *Call[K]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.state == callSent {
		return false
	}
	c.state = callAbandoned
	return true
}

// makeReadyLocked gives a partition to the sender of its path.
func (q *Queue[K]) makeReadyLocked(p *partition[K]) {
	key := senderKey{q.path(p.number), p.number % 2}
	s := q.senders[key]
	if s == nil {
		s = &sender[K]{}
		q.senders[key] = s
	}
	p.sender = s
	s.ready = append(s.ready, p)
	if !s.running {
		s.running = true
		q.running.Go(func() { q.run(key, s) })
	}
}

// run stores publications until none waits. Its round trips have no deadline but the client's.
func (q *Queue[K]) run(key senderKey, s *sender[K]) {
	for {
		batches := q.nextRoundTrip(key, s)
		if len(batches) == 0 {
			return
		}
		q.exec(context.Background(), batches)
		for _, b := range batches {
			q.release(b.Calls)
		}
		runtime.Gosched() // the callers may publish again, and then share the next round trip
		q.finish(batches)
	}
}

// release lets the callers go on whose calls are over. Those that are to be confirmed do not delay the
// next script call of their partition.
func (q *Queue[K]) release(calls []*Call[K]) {
	for _, c := range calls {
		if c.Err == nil && c.confirm != nil {
			q.confirms.add(c)
			continue
		}
		close(c.done)
	}
}

// nextRoundTrip returns the next script call of each partition of the sender. It returns none, and
// removes the sender, if nothing waits.
func (q *Queue[K]) nextRoundTrip(key senderKey, s *sender[K]) (batches []*Batch[K]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	calls, bytes := 0, 0
	for len(s.ready) > 0 && calls < maxRoundTripCalls && bytes < maxRoundTripBytes {
		p := s.ready[0]
		s.ready = slices.Delete(s.ready, 0, 1)
		b, size := p.nextBatchLocked()
		if len(b.Calls) == 0 {
			p.sender = nil
			delete(q.partitions, p.number)
			continue
		}
		batches, calls, bytes = append(batches, b), calls+len(b.Calls), bytes+size
	}
	if len(batches) == 0 {
		s.running = false
		delete(q.senders, key)
	}
	return batches
}

// nextBatchLocked takes calls from the partition. It takes all that wait if they were abandoned.
func (p *partition[K]) nextBatchLocked() (b *Batch[K], bytes int) {
	b = &Batch[K]{Partition: p.number, from: p}
	n, now := 0, time.Now()
	for n < len(p.waiting) && len(b.Calls) < maxBatchCalls && (bytes == 0 || bytes+p.waiting[n].bytes <= maxBatchBytes) {
		c := p.waiting[n]
		n++
		if c.state == callAbandoned || c.isOverdue(now) {
			c.state = callAbandoned
			continue
		}
		c.state = callSent
		bytes += c.bytes
		b.Calls = append(b.Calls, c)
		b.IsDurable = b.IsDurable || c.confirm != nil
	}
	p.waiting = slices.Delete(p.waiting, 0, n)
	return b, bytes
}

// isOverdue reports whether the context is done. After a pause of this process, its caller may not
// know that yet.
func (c *Call[K]) isOverdue(now time.Time) bool {
	deadline, ok := c.ctx.Deadline()
	return c.ctx.Err() != nil || ok && !now.Before(deadline)
}

// finish makes the partitions ready again for which publications wait. Their paths may have changed.
func (q *Queue[K]) finish(batches []*Batch[K]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, b := range batches {
		p := b.from
		p.sender = nil
		switch {
		case len(p.waiting) > 0:
			q.makeReadyLocked(p)
		case q.partitions[p.number] == p:
			delete(q.partitions, p.number)
		}
	}
}

// Close rejects what waits, and everything after it.
func (q *Queue[K]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, p := range q.partitions {
		for _, c := range p.waiting {
			if c.state == callWaiting {
				c.state, c.Err = callAbandoned, ErrClosed
				close(c.done)
			}
		}
		p.waiting = nil
	}
}

// Wait waits until nothing is in flight or ctx is done. It must be called after Close.
func (q *Queue[K]) Wait(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.running.Wait()
		q.confirms.running.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Waiting returns the number of publications that wait to be sent, for tests.
func (q *Queue[K]) Waiting() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range q.partitions {
		for _, c := range p.waiting {
			if c.state == callWaiting {
				n++
			}
		}
	}
	return n
}

// IsConfirming reports whether stored publications wait to be confirmed, for tests.
func (q *Queue[K]) IsConfirming() bool {
	q.confirms.mu.Lock()
	defer q.confirms.mu.Unlock()
	return len(q.confirms.byKey) > 0
}
