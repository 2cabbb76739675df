package router

import (
	"context"
	"fmt"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/history"
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
	state, err := r.histories.ReadState(ctx, topic, r.topics.patternOf(topic).opts.History.retention())
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
	if err := checkTopic(topic); err != nil {
		return Recovery{}, err
	}
	if err := c.conn.router.topics.mustHaveHistory(topic); err != nil {
		return Recovery{}, err
	}
	recovery, err := c.conn.subscribeSince(c, topic, broker.Position{}, true)
	c.conn.router.topics.releaseFollower(topic, c.conn)
	return recovery, err
}

// joinState makes a subscriber a follower, and holds what it has missed since a position or, if it
// cannot receive that or has no position, the current state. It reports false if the subscriber has
// unsubscribed or has asked again meanwhile.
func (t *topic) joinState(ctx context.Context, c *Conn, f *follower, since broker.Position) (result Recovery, active bool, err error) {
	keys, tooMuch := 0, false
	prepare := func(state []broker.Publication) error {
		keys = len(state)
		return t.holdState(c, f, state)
	}
	activate := func(j history.Joined) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.joining[c] != f {
			return
		}
		if tooMuch = !t.holdMissed(c, f, j.Publications); tooMuch {
			return
		}
		t.follow(c, f)
		active = true
		result = Recovery{Position: j.Position, Recovered: j.Recovered, Ended: j.Ended}
		result.Position.Offset -= uint64(len(j.Publications))
		if j.State {
			result.hasState, result.State = true, keys
		}
	}
	err = t.sequencer.JoinState(ctx, since, t.maxMissed(c), prepare, activate)
	if tooMuch && since.Epoch != "" { // what it has missed is too long
		tooMuch = false
		err = t.sequencer.JoinState(ctx, broker.Position{}, 0, prepare, activate)
		result.Recovered = false
	}
	if tooMuch {
		err = &errors.Error{Code: errors.Unavailable, Message: "too much was published while the state was read"}
	}
	if !active {
		f.release()
	}
	return result, active, err
}

// holdState encodes the state for a follower that is joining. If it is too large, holdState keeps
// nothing and returns an error.
func (t *topic) holdState(c *Conn, f *follower, state []broker.Publication) error {
	f.release() // what an earlier attempt has read
	limits := c.router.opts.Limits
	bytes := 0
	for _, p := range state {
		frame := t.storedFrame(c, p)
		if frame == nil {
			f.release()
			return t.stateLacksFormat(p.Position)
		}
		f.frames = append(f.frames, frame)
		bytes += len(frame.Text())
		if len(state) > limits.QueueMessages/2 || bytes > limits.QueueBytes/2 {
			f.release()
			return t.stateTooLarge(len(state), limits)
		}
	}
	return nil
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
