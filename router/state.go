package router

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/topicname"
)

// This file keeps the current state of the keys of a topic with a History.

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
	if err := r.topics.CheckHistory(topic); err != nil {
		return nil, broker.Position{}, err
	}
	state, at, err := sequencer.ReadState(ctx, r.histories, topic, r.topics.PatternOf(topic).Retention)
	if err != nil {
		return nil, broker.Position{}, err
	}
	return r.parseAllStored(ctx, topic, state), at, nil
}
