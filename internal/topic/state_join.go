package topic

import (
	"context"
	"fmt"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file sends the current state of the keys of a topic with a History to clients that join.

// A stateJoin is a subscriber that joins with the current state of a topic.
type stateJoin struct {
	topics *Topics
	topic  *Topic
	f      *follower
	after  *broker.Position

	frames  []*wsconn.Frame // the state
	result  JoinResult
	active  bool // the subscriber has not unsubscribed or asked again meanwhile
	tooMuch bool // it cannot hold what it would receive
}

// joinState makes a subscriber a follower, and holds what it has missed since a position or, if it
// cannot receive that or has no position, the current state. It reports false if the subscriber has
// unsubscribed or has asked again meanwhile.
func (ts *Topics) joinState(ctx context.Context, t *Topic, f *follower, req JoinRequest) (JoinResult, bool, error) {
	j := &stateJoin{topics: ts, topic: t, f: f, after: req.After}
	defer j.release()
	err := t.history.sequencer.JoinState(ctx, req.Since, req.Missed, ts.statePartBytes(), j.prepare, j.activate)
	if j.tooMuch && req.Since.Epoch != "" {
		j.tooMuch = false
		err = t.history.sequencer.JoinState(ctx, broker.Position{}, nil, ts.statePartBytes(), j.prepare, j.activate)
		j.result.Recovered = false
	}
	if j.tooMuch {
		err = &errors.Error{Code: errors.Unavailable, Message: "too many messages are waiting for this connection"}
	}
	return j.result, j.active, err
}

// prepare encodes the first part of the state.
func (j *stateJoin) prepare(state []broker.Publication) error {
	j.release() // what an earlier attempt has read
	for _, p := range state {
		frame := j.topics.storedFrame(j.topic, j.f.conn, p)
		if frame == nil {
			return j.topic.stateLacksFormat(p.Position)
		}
		j.frames = append(j.frames, frame)
	}
	return nil
}

// activate makes the subscriber a follower. The sequencer calls it under its lock.
func (j *stateJoin) activate(joined sequencer.Joined) {
	t, f := j.topic, j.f
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.history.isJoining(f) {
		return
	}
	joined = withhold(joined, j.after)
	keys, frames := len(j.frames), j.frames
	j.frames = nil // encodeMissed takes or releases them
	switch {
	case j.topics.encodeMissed(t, f, frames, joined):
	case joined.Rest == nil:
		j.tooMuch = true
		return
	default:
		keys, joined.Publications = 0, nil
		joined.Rest.BeginAgain(joined.Position)
	}
	t.promoteLocked(f)
	j.active = true
	j.result = JoinResult{Position: before(joined.Position, joined.Publications), Recovered: joined.Recovered, Ended: joined.Ended, Read: len(joined.Publications)}
	if joined.Rest != nil {
		j.result.HasState, j.result.State = true, keys
		if j.result.More = !joined.Rest.Complete(); j.result.More {
			f.rest = joined.Rest
		}
	}
}

// release drops the state if no follower holds it.
func (j *stateJoin) release() {
	for _, frame := range j.frames {
		frame.Release()
	}
	j.frames = nil
}

// stateLacksFormat reports a message that a node with other codecs has stored.
func (t *Topic) stateLacksFormat(at broker.Position) error {
	return &errors.Error{
		Code:    errors.FailedPrecondition,
		Message: fmt.Sprintf("the state of topic %q is not available in the format of this connection", t.Name),
		Err:     fmt.Errorf("router: the message at %v was stored without this format; all nodes need the same Options.Codecs", at),
	}
}
