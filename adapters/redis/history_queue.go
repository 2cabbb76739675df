package redis

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// An appendQueue stores publications in few round trips. Publications of a partition that wait
// while others of it are in flight share the next script call, in the order in which they came.
// Partitions of the same path share round trips. A partition with publications belongs to one
// sender until it is empty, so that at most one call of it is in flight, also if its path changes.
//
// Each sender with publications has a goroutine, run. Everything is guarded by mu, which is not held
// while exec runs.
type appendQueue struct {
	exec func(context.Context, []*appendBatch) // sets the results of all calls
	path func(partition int) string

	mu         sync.Mutex
	partitions map[int]*appendPartition
	senders    map[senderKey]*appendSender
	closed     bool
	running    sync.WaitGroup // of the goroutines
}

// An appendCall is one publication.
type appendCall struct {
	broker.Append
	ctx   context.Context //nolint:containedctx // of the caller, who waits
	keys  historyKeys
	bytes int

	state  callState
	result broker.Appended
	err    error
	done   chan struct{} // closed when result or err is set
}

type callState byte

const (
	callWaiting callState = iota
	callSent
	callAbandoned // never sent
)

// An appendBatch is one script call.
type appendBatch struct {
	partition *appendPartition
	calls     []*appendCall
}

type appendPartition struct {
	number  int
	waiting []*appendCall
	sender  *appendSender // nil while nothing waits and nothing is in flight
}

// A senderKey is a path and, since one round trip at a time would leave the server idle while this
// process handles the results, one of two halves of the partitions.
type senderKey struct {
	path string
	half int
}

type appendSender struct {
	ready   []*appendPartition
	running bool
}

const (
	maxBatchCalls     = 128 // of one script call: the server does nothing else meanwhile
	maxBatchBytes     = 1 << 20
	maxRoundTripCalls = 1024
	maxRoundTripBytes = 4 << 20
	callOverhead      = 128 // bytes in addition to the packet
)

func newAppendQueue(path func(int) string, exec func(context.Context, []*appendBatch)) *appendQueue {
	return &appendQueue{exec: exec, path: path, partitions: map[int]*appendPartition{}, senders: map[senderKey]*appendSender{}}
}

// do stores a publication. If its context is done before it is sent, it is never sent.
func (q *appendQueue) do(c *appendCall) (broker.Appended, error) {
	ctx := c.ctx
	if !q.enqueue(c) {
		return broker.Appended{}, errClosedSession
	}
	select {
	case <-c.done:
		return c.result, c.err
	case <-ctx.Done():
	}
	if q.abandon(c) {
		return broker.Appended{}, ctx.Err()
	}
	select {
	case <-c.done: // meanwhile
		return c.result, c.err
	default:
		return broker.Appended{}, unknownOutcome("publication", ctx.Err())
	}
}

var errClosedSession = errors.Errorf(errors.Unavailable, "the broker's session is closed")

// enqueue returns false if the queue is closed.
func (q *appendQueue) enqueue(c *appendCall) bool {
	c.done = make(chan struct{})
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	p := q.partitions[c.keys.channel.Partition]
	if p == nil {
		p = &appendPartition{number: c.keys.channel.Partition}
		q.partitions[p.number] = p
	}
	p.waiting = append(p.waiting, c)
	if p.sender == nil {
		q.makeReady(p)
	}
	return true
}

// abandon returns false if the call was sent.
func (q *appendQueue) abandon(c *appendCall) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.state == callSent {
		return false
	}
	c.state = callAbandoned
	return true
}

// makeReady gives a partition to the sender of its path. q.mu must be held.
func (q *appendQueue) makeReady(p *appendPartition) {
	key := senderKey{q.path(p.number), p.number % 2}
	s := q.senders[key]
	if s == nil {
		s = &appendSender{}
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
func (q *appendQueue) run(key senderKey, s *appendSender) {
	for {
		batches := q.nextRoundTrip(key, s)
		if len(batches) == 0 {
			return
		}
		q.exec(context.Background(), batches)
		for _, b := range batches {
			for _, c := range b.calls {
				close(c.done)
			}
		}
		runtime.Gosched() // the callers may publish again, and then share the next round trip
		q.finish(batches)
	}
}

// nextRoundTrip returns the next script call of each partition of the sender. It returns none, and
// removes the sender, if nothing waits.
func (q *appendQueue) nextRoundTrip(key senderKey, s *appendSender) (batches []*appendBatch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	calls, bytes := 0, 0
	for len(s.ready) > 0 && calls < maxRoundTripCalls && bytes < maxRoundTripBytes {
		p := s.ready[0]
		s.ready = slices.Delete(s.ready, 0, 1)
		b, size := p.nextBatch()
		if len(b.calls) == 0 {
			p.sender = nil
			delete(q.partitions, p.number)
			continue
		}
		batches, calls, bytes = append(batches, b), calls+len(b.calls), bytes+size
	}
	if len(batches) == 0 {
		s.running = false
		delete(q.senders, key)
	}
	return batches
}

// nextBatch takes calls from the partition. It takes all that wait if they were abandoned.
func (p *appendPartition) nextBatch() (b *appendBatch, bytes int) {
	b = &appendBatch{partition: p}
	n, now := 0, time.Now()
	for n < len(p.waiting) && len(b.calls) < maxBatchCalls && (bytes == 0 || bytes+p.waiting[n].bytes <= maxBatchBytes) {
		c := p.waiting[n]
		n++
		if c.state == callAbandoned || c.isOverdue(now) {
			c.state = callAbandoned
			continue
		}
		c.state = callSent
		bytes += c.bytes
		b.calls = append(b.calls, c)
	}
	p.waiting = slices.Delete(p.waiting, 0, n)
	return b, bytes
}

// isOverdue reports whether the context is done. After a pause of this process, its caller may not
// know that yet.
func (c *appendCall) isOverdue(now time.Time) bool {
	deadline, ok := c.ctx.Deadline()
	return c.ctx.Err() != nil || ok && !now.Before(deadline)
}

// finish makes the partitions ready again for which publications wait. Their paths may have changed.
func (q *appendQueue) finish(batches []*appendBatch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, b := range batches {
		p := b.partition
		p.sender = nil
		switch {
		case len(p.waiting) > 0:
			q.makeReady(p)
		case q.partitions[p.number] == p:
			delete(q.partitions, p.number)
		}
	}
}

// close rejects what waits, and everything after it.
func (q *appendQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, p := range q.partitions {
		for _, c := range p.waiting {
			if c.state == callWaiting {
				c.state, c.err = callAbandoned, errClosedSession
				close(c.done)
			}
		}
		p.waiting = nil
	}
}

// wait waits until nothing is in flight or ctx is done. It must be called after close.
func (q *appendQueue) wait(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.running.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
