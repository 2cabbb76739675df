package router

import (
	"context"
	"fmt"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/history"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file keeps the current state of the keys of a topic with a History, and sends it to clients
// that join.

// stateKey returns the key whose state a stored message is, or "" if it is not Conflatable. Other
// than that of a queue, it does not contain the message's type.
func stateKey(m Message, removed bool) (key string, err error) {
	keyed, ok := m.(Conflatable)
	switch {
	case ok:
		defer recoverMethod(&err, "ConflationKey", m)
		return "=" + keyed.ConflationKey(), nil // the empty key is a key, too
	case removed:
		return "", errors.Errorf(errors.InvalidArgument, "PublishOptions.Removed needs a router.Conflatable; %T has no ConflationKey", m)
	}
	return "", nil
}

// ReadState returns the current state of a topic with a History, as of the position that it returns:
// the latest message of each conflation key, in the order of their positions. Removed keys and
// messages that are older than History.Age are not included.
func (r *Router) ReadState(ctx context.Context, topic string) ([]StoredMessage, broker.Position, error) {
	if err := checkTopic(topic); err != nil {
		return nil, broker.Position{}, err
	}
	if err := r.topics.mustHaveHistory(topic); err != nil {
		return nil, broker.Position{}, err
	}
	state, err := r.histories.ReadState(ctx, broker.StateQuery{Topic: topic, Retention: r.topics.patternOf(topic).opts.History.retention(), MaxBytes: 1 << 30})
	if err != nil {
		return nil, broker.Position{}, err
	}
	history.SortState(state.Publications)
	messages, err := r.parseAllStored(state.Publications)
	return messages, state.Position, err
}

// SubscribeState is [Context.SubscribeSince] for a client that needs the current state of the topic:
// the client first receives the latest message of each conflation key, as many as Recovery.State, in
// the order of their offsets, and then every publication after Recovery.Position. A key that is
// removed meanwhile is either not in the state, or the client receives its removal.
//
// SubscribeState also returns RESOURCE_EXHAUSTED if the state is larger than half of the send queue
// (Limits.QueueMessages and Limits.QueueBytes), and UNAVAILABLE if the topic changes too much while
// its state is read. The connection is then subscribed only if it was before.
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
	err := t.history.sequencer.JoinState(ctx, req.since, t.maxMissed(f.conn), j.prepare, j.activate)
	if j.tooMuch && req.since.Epoch != "" {
		j.tooMuch = false
		err = t.history.sequencer.JoinState(ctx, broker.Position{}, 0, j.prepare, j.activate)
		j.result.Recovered = false
	}
	if j.tooMuch {
		err = &errors.Error{Code: errors.Unavailable, Message: "too many messages are waiting for this connection"}
	}
	return j.result, j.active, err
}

// prepare encodes the state. It returns an error if the state is too large.
func (j *stateJoin) prepare(state []broker.Publication) error {
	j.release() // what an earlier attempt has read
	limits, bytes := j.f.conn.router.opts.Limits, 0
	for _, p := range state {
		frame := j.topic.storedFrame(j.f.conn, p)
		if frame == nil {
			return j.topic.stateLacksFormat(p.Position)
		}
		j.frames = append(j.frames, frame)
		bytes += len(frame.Text())
		if len(state) > limits.QueueMessages/2 || bytes > limits.QueueBytes/2 {
			return j.topic.stateTooLarge(len(state), limits)
		}
	}
	return nil
}

// activate makes the subscriber a follower. The sequencer calls it under its lock.
func (j *stateJoin) activate(joined history.Joined) {
	t, f := j.topic, j.f
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.history.isJoining(f) {
		return
	}
	joined = j.grant.withhold(joined)
	keys, frames := len(j.frames), j.frames
	j.frames = nil // holdMissed takes or releases them
	if j.tooMuch = !t.holdMissed(f, frames, joined.Publications); j.tooMuch {
		return
	}
	t.follow(f)
	j.active = true
	j.result = Recovery{Position: joined.Position, Recovered: joined.Recovered, Ended: joined.Ended, read: len(joined.Publications)}
	j.result.Position.Offset -= uint64(len(joined.Publications))
	if joined.State {
		j.result.hasState, j.result.State = true, keys
	}
}

// release drops the state if no follower holds it.
func (j *stateJoin) release() {
	for _, frame := range j.frames {
		frame.Release()
	}
	j.frames = nil
}

func (t *topic) stateTooLarge(keys int, limits Limits) error {
	return &errors.Error{
		Code:       errors.ResourceExhausted,
		Message:    fmt.Sprintf("the state of topic %q, %d keys, is too large", t.name, keys),
		RetryAfter: errors.Never,
		Err: fmt.Errorf("router: the state of a topic must not exceed half of the send queue: raise Limits.QueueMessages, which is %d, or Limits.QueueBytes, which is %d",
			limits.QueueMessages, limits.QueueBytes),
	}
}

// stateLacksFormat reports a message that a node with other codecs has stored.
func (t *topic) stateLacksFormat(at broker.Position) error {
	return &errors.Error{
		Code:    errors.FailedPrecondition,
		Message: fmt.Sprintf("the state of topic %q is not available in the format of this connection", t.name),
		Err:     fmt.Errorf("router: the message at %v was stored without this format; all nodes need the same Options.Codecs", at),
	}
}
