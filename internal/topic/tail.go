package topic

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// This file reads a history for the application, which waits for what is published next.

var errClosing = &errors.Error{Code: errors.Unavailable, Message: "the server is shutting down"}

// Tail follows a topic with a History after a position; the zero Position is before the oldest publication. next is that
// of [sequencer.Tail], and ends with Close, too. The caller must call stop.
func (ts *Topics) Tail(name string, after broker.Position) (next func(context.Context) ([]broker.Publication, error), stop func()) {
	t := ts.listen(name)
	tail := t.history.sequencer.Tail(after)
	next = func(ctx context.Context) ([]broker.Publication, error) {
		ctx, end := context.WithCancelCause(ctx)
		defer end(nil)
		defer context.AfterFunc(ts.closing, func() { end(errClosing) })()
		return tail.Next(ctx)
	}
	return next, func() {
		tail.Close()
		ts.Remove(t, nil, true)
	}
}

// listen makes this node receive the publications of a topic without a subscriber, until Remove is called without one.
func (ts *Topics) listen(name string) *Topic {
	shard := ts.shard(name)
	s := &ts.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[name]; t != nil {
		t.subscriptions++
		return t
	}
	t := &Topic{Name: name, Pattern: ts.PatternOf(name), shard: shard, subscriptions: 1}
	s.topics[name] = t
	ts.node.Subscribe(name)
	ts.startSequencer(t)
	return t
}
