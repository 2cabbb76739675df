// Package appendqueue stores the publications of a node in few round trips to a store of histories,
// and waits until they are as durable as they must be. A type parameter K is what the store keeps
// with each of them, such as the names of its keys.
//
// The locks of confirmQueue and of the pathqueue are never held together, nor while a function of
// the store runs. Goroutines exist only while publications are stored or confirmed.
package appendqueue

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/pathqueue"
)

// A Queue stores publications in few round trips. Publications of a partition that wait while
// others of it are in flight share the next script call, in the order in which they came.
// Partitions of the same path share round trips.
type Queue[K any] struct {
	exec     func(context.Context, []*Batch[K]) // sets the results of all calls
	calls    *pathqueue.Queue[*Call[K]]
	confirms *confirmQueue[K] // continues with calls that have a Durability
}

// A Call is one publication.
type Call[K any] struct {
	broker.Append
	Keys   K
	Result broker.Appended // set by exec
	Err    error           // set by exec; nil if the store has the publication

	ctx       context.Context //nolint:containedctx // of the caller, who waits
	partition int
	state     atomic.Int32  // a callState
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

// States of a call.
const (
	callWaiting int32 = iota
	callSent
	callAbandoned // never sent
)

// A Batch is one script call.
type Batch[K any] struct {
	Partition int
	Calls     []*Call[K]
	IsDurable bool // some of the calls have a Durability
}

const (
	maxBatchCalls     = 128 // of one script call: the server does nothing else meanwhile
	maxBatchBytes     = 1 << 20
	maxRoundTripCalls = 1024
	maxRoundTripBytes = 4 << 20
	callOverhead      = 128 // bytes in addition to the packet

	// One round trip at a time would leave the server idle while this process handles the results.
	roundTrips = 2
)

// New returns a queue. path returns the address of the store of a partition, exec executes script
// calls in one round trip, and confirm asks the store of a partition for a confirmation.
func New[K any](path func(partition int) string, exec func(context.Context, []*Batch[K]), confirm func(d broker.Durability, partition int, limit time.Duration) Confirmation) *Queue[K] {
	q := &Queue[K]{exec: exec, confirms: newConfirmQueue[K](confirm)}
	q.calls = pathqueue.New(pathqueue.Config[*Call[K]]{
		Path: path, Send: q.send, RoundTrips: roundTrips,
		MaxBatch:     pathqueue.Amount{Items: maxBatchCalls, Bytes: maxBatchBytes},
		MaxRoundTrip: pathqueue.Amount{Items: maxRoundTripCalls, Bytes: maxRoundTripBytes},
		Size: func(c *Call[K]) int {
			return len(c.Packet) + len(c.StateKey) + len(c.IdempotencyKey) + callOverhead
		},
	})
	return q
}

// Do stores a publication. If its context is done before it is sent, it is never sent.
func (q *Queue[K]) Do(ctx context.Context, a broker.Append, partition int, keys K) (broker.Appended, error) {
	c := &Call[K]{Append: a, Keys: keys, ctx: ctx, partition: partition, done: make(chan struct{})}
	if a.Durability != (broker.Durability{}) {
		c.confirm = &confirmState{}
	}
	if !q.calls.Add(partition, c) {
		return broker.Appended{}, ErrClosed
	}
	select {
	case <-c.done:
		return c.Result, c.Err
	case <-ctx.Done():
	}
	if c.abandon() {
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
	return &errors.Error{Code: errors.OutcomeUnknown, Message: "the publication may have been stored", Err: cause}
}

// abandon makes sure that a call that was not sent never is. It returns false if the call was sent.
func (c *Call[K]) abandon() bool {
	return c.state.CompareAndSwap(callWaiting, callAbandoned) || c.state.Load() == callAbandoned
}

// isOverdue reports whether the context is done. After a pause of this process, its caller may not
// know that yet.
func (c *Call[K]) isOverdue(now time.Time) bool {
	deadline, ok := c.ctx.Deadline()
	return c.ctx.Err() != nil || ok && !now.Before(deadline)
}

// send stores publications. Its round trip has no deadline but the client's.
func (q *Queue[K]) send(_ string, taken []pathqueue.Batch[*Call[K]]) (pause time.Duration) {
	var batches []*Batch[K]
	now := time.Now()
	for _, b := range taken {
		if batch := batchOf(b, now); len(batch.Calls) > 0 {
			batches = append(batches, batch)
		}
	}
	if len(batches) == 0 {
		return 0
	}
	q.exec(context.Background(), batches)
	for _, b := range batches {
		q.release(b.Calls)
	}
	runtime.Gosched() // the callers may publish again, and then share the next round trip
	return 0
}

// batchOf returns the script call of a batch, without the calls whose callers have gone.
func batchOf[K any](taken pathqueue.Batch[*Call[K]], now time.Time) *Batch[K] {
	b := &Batch[K]{Partition: taken.Partition}
	for _, c := range taken.Items {
		if c.isOverdue(now) {
			c.abandon()
		}
		if c.state.CompareAndSwap(callWaiting, callSent) {
			b.Calls = append(b.Calls, c)
			b.IsDurable = b.IsDurable || c.confirm != nil
		}
	}
	return b
}

// release lets the callers go on whose calls are over. Those that are to be confirmed do not delay
// the next script call of their partition.
func (q *Queue[K]) release(calls []*Call[K]) {
	for _, c := range calls {
		if c.Err == nil && c.confirm != nil {
			q.confirms.add(c)
			continue
		}
		close(c.done)
	}
}

// Close rejects what waits, and everything after it.
func (q *Queue[K]) Close() {
	for _, c := range q.calls.Close() {
		if c.state.CompareAndSwap(callWaiting, callAbandoned) {
			c.Err = ErrClosed
			close(c.done)
		}
	}
}

// Wait waits until nothing is in flight or ctx is done. It must be called after Close.
func (q *Queue[K]) Wait(ctx context.Context) {
	if q.calls.Wait(ctx); ctx.Err() != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.confirms.running.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Waiting returns the number of publications that wait to be sent, for tests.
func (q *Queue[K]) Waiting() (n int) { return q.calls.Waiting() }

// IsConfirming reports whether stored publications wait to be confirmed, for tests.
func (q *Queue[K]) IsConfirming() bool {
	q.confirms.mu.Lock()
	defer q.confirms.mu.Unlock()
	return len(q.confirms.byKey) > 0
}
