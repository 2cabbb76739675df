package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/appendqueue"
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/cluster"
)

// A historyNode is a node that uses histories.
type historyNode struct {
	*cluster.Node
	store     *store
	link      *link
	queue     *appendqueue.Queue[struct{}]
	reads     *batch.Batcher[readRequest, readResponse]
	values    *batch.Batcher[valueRequest, broker.Value]
	follows   follows
	sequencer *sequencer

	closed atomic.Bool
}

type (
	appendCall  = appendqueue.Call[struct{}]
	appendBatch = appendqueue.Batch[struct{}]
)

// Append stores and publishes a.
func (s *historyNode) Append(ctx context.Context, a broker.Append) (broker.Appended, error) {
	if ctx.Err() != nil {
		return broker.Appended{}, ctx.Err()
	}
	return s.queue.Do(ctx, a, shardOf(a.Topic), struct{}{})
}

// append stores the publications of batches, which are of different shards, each in one
// transaction.
func (s *historyNode) append(ctx context.Context, batches []*appendBatch) {
	for _, b := range batches {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := s.store.sequence(ctx, b.Partition, b.Calls)
		cancel()
		if err = storeError("publication", err); err == nil {
			continue
		}
		for _, c := range b.Calls {
			c.Err = err
		}
	}
}

// check returns an error if a call must do nothing.
func (s *historyNode) check(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.closed.Load():
		return appendqueue.ErrClosed
	}
	return nil
}

// Close ends the node. Publications that are in flight have their results before it returns, unless
// ctx is done.
func (s *historyNode) Close(ctx context.Context) error {
	if s.closed.Swap(true) {
		return s.Node.Close(ctx)
	}
	s.follows.gate.Close()
	s.sequencer.stop()
	s.queue.Close()
	s.queue.Wait(ctx)
	return s.Node.Close(ctx)
}

// Kill ends the node as a crash does, for tests.
func (s *historyNode) Kill() {
	s.closed.Store(true)
	s.follows.gate.Close()
	s.sequencer.stop()
	s.queue.Close()
	s.Node.Kill()
}

// maxAge bounds the ages and lifetimes that are stored.
const maxAge = 100 * 365 * 24 * time.Hour

// ageOf returns the age at which publications expire.
func ageOf(r broker.Retention) time.Duration {
	if r.Age <= 0 {
		return broker.DefaultAge
	}
	return min(r.Age, maxAge)
}

// lifetimeMargin is by how much the lifetime of a topic exceeds what is promised, so that a read
// seldom has to extend it.
func (s *store) lifetimeMargin() time.Duration { return s.metadataAge / 24 }

// lifetime returns how long a topic is kept after its last use.
func (s *store) lifetime(age time.Duration) time.Duration {
	return age + s.metadataAge + s.lifetimeMargin()
}
