package router

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/topicname"
)

// This file keeps the current state of the keys of a topic with a History.

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
		return "", errors.Errorf(errors.InvalidArgument, "Removed needs a router.Conflatable; %T has no ConflationKey", m)
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
	if err := topicname.Check(topic); err != nil {
		return nil, broker.Position{}, err
	}
	if err := r.mustHaveHistory(topic); err != nil {
		return nil, broker.Position{}, err
	}
	state, at, err := sequencer.ReadState(ctx, r.histories, topic, r.topics.PatternOf(topic).Retention)
	if err != nil {
		return nil, broker.Position{}, err
	}
	return r.parseAllStored(ctx, topic, state), at, nil
}
