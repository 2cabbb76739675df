package topic

import (
	"context"
	"iter"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/sleep"
)

// This file reads a history for the application, which waits for what is published next.

const tailPage = 256 // publications that are read at once

var errClosing = &errors.Error{Code: errors.Unavailable, Message: "the server is shutting down"}

// Tail returns the publications of a topic with a History after a position, and those that follow, until ctx is done or
// Close is called. The zero position is before the oldest one. Its error is the last value.
func (ts *Topics) Tail(ctx context.Context, name string, after broker.Position) iter.Seq2[broker.Publication, error] {
	return func(yield func(broker.Publication, error) bool) {
		t := ts.listen(name)
		defer ts.unlisten(t)
		if err := ts.awaitAttached(ctx, t); err != nil {
			yield(broker.Publication{}, err)
			return
		}
		for {
			changed := t.changes()
			page, err := ts.readAfter(ctx, t, &after)
			if err != nil {
				yield(broker.Publication{}, err)
				return
			}
			for _, p := range page {
				after.Offset = p.Position.Offset
				if !yield(p, nil) {
					return
				}
			}
			if len(page) > 0 {
				continue
			}
			if err := ts.await(ctx, changed); err != nil {
				yield(broker.Publication{}, err)
				return
			}
		}
	}
}

// listen makes this node receive the publications of a topic without a subscriber. The caller must call unlisten.
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

func (ts *Topics) unlisten(t *Topic) { ts.Remove(t, nil, true) }

// changes returns a channel that is closed when something is published.
func (t *Topic) changes() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.history.changed == nil {
		t.history.changed = make(chan struct{})
	}
	return t.history.changed
}

// notify wakes those that wait for changes.
func (t *Topic) notify() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.history.changed != nil {
		close(t.history.changed)
		t.history.changed = nil
	}
}

// await waits until a channel is closed.
func (ts *Topics) await(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-ts.closing.Done():
		return errClosing
	}
}

// awaitAttached waits until what is published from now on causes a change.
func (ts *Topics) awaitAttached(ctx context.Context, t *Topic) error {
	attached := make(chan struct{})
	t.history.sequencer.WhenAttachedIf(func() bool { return ctx.Err() == nil }, func(broker.Position) { close(attached) })
	return ts.await(ctx, attached)
}

// readAfter returns stored publications after a position, whose epoch it sets to the current one. It waits while the
// store cannot be reached.
func (ts *Topics) readAfter(ctx context.Context, t *Topic, after *broker.Position) ([]broker.Publication, error) {
	var backoff sleep.Backoff
	for {
		page, err := ts.histories.Read(ctx, broker.Query{Topic: t.Name, Retention: t.Pattern.Retention, After: after.Offset, Limit: tailPage})
		if err == nil {
			return page.Publications, follows(page, after)
		}
		if code := errors.CodeOf(err); code == errors.InvalidArgument || code == errors.FailedPrecondition {
			return nil, err
		}
		if err := ts.closing.Err(); err != nil {
			return nil, errClosing
		}
		if err := backoff.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// follows returns an error unless a page has all that was published after a position, whose epoch it sets to the current
// one.
func follows(page broker.Page, after *broker.Position) error {
	asked := *after
	after.Epoch = page.Position.Epoch
	switch {
	case asked == broker.Position{}:
		if len(page.Publications) == 0 {
			after.Offset = page.Position.Offset
		}
		return nil
	case asked.Epoch != page.Position.Epoch && (asked.Epoch != page.Previous.Epoch || asked.Offset > page.Previous.Offset):
		return errors.Errorf(errors.FailedPrecondition, "the epoch of position %v has ended, and messages may be lost; begin again", asked)
	case asked.Offset > page.Position.Offset:
		return errors.Errorf(errors.InvalidArgument, "position %v is beyond the current one, %v", asked, page.Position)
	case asked.Offset == page.Position.Offset:
		return nil
	case len(page.Publications) == 0 || page.Publications[0].Position.Offset > asked.Offset+1:
		return errors.Errorf(errors.FailedPrecondition, "the history does not have the messages after position %v any more; begin again", asked)
	}
	return nil
}

// sink returns what handles the publications of a topic.
func (ts *Topics) sink(t *Topic) sequencer.Sink {
	return sequencer.Sink{
		Deliver: func(p broker.Publication) {
			ts.deliverStored(t, p)
			t.notify()
		},
		Lost: func(l sequencer.Loss) {
			ts.lose(t, l)
			t.notify()
		},
	}
}
