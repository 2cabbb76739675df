package router

import (
	"context"
	"fmt"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file keeps the current state of the keys of a topic with a History, and sends it to clients
// that join.

// stateKey returns the key whose state a stored message is, or "" if it is not Conflatable. Other
// than that of a queue, it does not contain the message's type.
func stateKey(m Message, removed bool) (key string, err error) {
	key, ok, err := envelope.ConflationKey(m)
	switch {
	case err != nil:
		return "", err
	case ok:
		return "=" + key, nil // the empty key is a key, too
	case removed:
		return "", errors.Errorf(errors.InvalidArgument, "PublishOptions.Removed needs a router.Conflatable; %T has no ConflationKey", m)
	}
	return "", nil
}

// ReadState returns the current state of a topic with a History: the latest message of each conflation
// key, in the order of their positions. Removed keys and messages that are older than History.Age are
// not included. Unlike a client that joins, the caller holds the whole state.
//
// A large state is read in parts, and a key that changes meanwhile is included as it was before or after
// that. Together with the publications after the position, which ReadState returns, it is the state
// at any later position.
func (r *Router) ReadState(ctx context.Context, topic string) ([]StoredMessage, broker.Position, error) {
	if err := checkTopic(topic); err != nil {
		return nil, broker.Position{}, err
	}
	if err := r.topics.mustHaveHistory(topic); err != nil {
		return nil, broker.Position{}, err
	}
	state, at, err := sequencer.ReadState(ctx, r.histories, topic, r.topics.patternOf(topic).opts.History.retention())
	if err != nil {
		return nil, broker.Position{}, err
	}
	messages, err := r.parseAllStored(state)
	return messages, at, err
}

// SubscribeState is [Context.SubscribeSince] for a client that needs the current state of the topic:
// the client first receives the latest message of each conflation key, as many as Recovery.State, in
// the order of their offsets, and then every publication after Recovery.Position. A key that is
// removed meanwhile is either not in the state, or the client receives its removal.
//
// A state of any size can be joined. If it is larger than about 128 KiB, or has no room in the send queue, Recovery.More is
// true, and the other keys follow between the publications, as fast as the client reads, after
// SubscribeState has returned: see the protocol, section 10. If the store cannot be read for
// Timeouts.Call or fails over meanwhile, or if the client makes no room for Timeouts.Send, the
// subscription ends, and the client receives $ws:unsubscribed with the error.
//
// SubscribeState also returns UNAVAILABLE if the topic changes too much while its state is read. The
// connection is then subscribed only if it was before.
func (c *Context) SubscribeState(topic string) (Recovery, error) {
	return c.subscribeWithHistory(topic, joinRequest{state: true})
}

// A stateJoin is a subscriber that joins with the current state of a topic.
type stateJoin struct {
	topic *topic
	f     *follower
	grant *topicGrant

	frames  []*wsconn.Frame // the state
	result  Recovery
	active  bool // the subscriber has not unsubscribed or asked again meanwhile
	tooMuch bool // it cannot hold what it would receive
}

// joinState makes a subscriber a follower, and holds what it has missed since a position or, if it
// cannot receive that or has no position, the current state. It reports false if the subscriber has
// unsubscribed or has asked again meanwhile.
func (t *topic) joinState(ctx context.Context, f *follower, req joinRequest) (Recovery, bool, error) {
	j := &stateJoin{topic: t, f: f, grant: req.grant}
	defer j.release()
	err := t.history.sequencer.JoinState(ctx, req.since, req.missed, f.conn.statePartBytes(), j.prepare, j.activate)
	if j.tooMuch && req.since.Epoch != "" {
		j.tooMuch = false
		err = t.history.sequencer.JoinState(ctx, broker.Position{}, nil, f.conn.statePartBytes(), j.prepare, j.activate)
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
		frame := j.topic.storedFrame(j.f.conn, p)
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
	joined = j.grant.withhold(joined)
	keys, frames := len(j.frames), j.frames
	j.frames = nil // encodeMissed takes or releases them
	switch {
	case t.encodeMissed(f, frames, joined.Publications):
	case joined.Rest == nil:
		j.tooMuch = true
		return
	default:
		keys, joined.Publications = 0, nil
		joined.Rest.BeginAgain(joined.Position)
	}
	t.promoteLocked(f)
	j.active = true
	j.result = Recovery{Position: joined.Position, Recovered: joined.Recovered, Ended: joined.Ended, read: len(joined.Publications)}
	j.result.Position.Offset -= uint64(len(joined.Publications))
	if joined.Rest != nil {
		j.result.hasState, j.result.State = true, keys
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
func (t *topic) stateLacksFormat(at broker.Position) error {
	return &errors.Error{
		Code:    errors.FailedPrecondition,
		Message: fmt.Sprintf("the state of topic %q is not available in the format of this connection", t.name),
		Err:     fmt.Errorf("router: the message at %v was stored without this format; all nodes need the same Options.Codecs", at),
	}
}
