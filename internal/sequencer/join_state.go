package sequencer

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// errUnsettled ends a JoinState or JoinLast whose attempts all failed.
var errUnsettled = &errors.Error{Code: errors.Unavailable, Message: "the topic changed too much while it was read"}

// JoinState is [Sequencer.Join] for a subscriber that needs the current state if it cannot receive
// what it has missed, or has no position. In this case it calls prepare, without locks, with the first
// part of the state, about maxBytes long, in the order of offsets, and then activate: its Joined has Rest
// set, and together with the publications of the last call of prepare describes how the subscriber
// continues. A key that is removed after the state was read is removed by one of the publications
// that follow.
//
// JoinState returns the error of prepare, and an UNAVAILABLE error if the topic changed too much in
// several attempts. It has not called activate then.
func (s *Sequencer) JoinState(ctx context.Context, since broker.Position, from *CatchupTopic, maxBytes int, prepare func([]broker.Publication) error, activate func(Joined)) error {
	return s.rejoinOr(ctx, since, from, activate, func() (outcome, error) {
		return s.tryJoinState(ctx, since.Epoch == "", maxBytes, prepare, activate)
	})
}

// tryJoinState is one attempt of JoinState. The subscriber is registered before the state is read, so
// that it receives everything that is published after the state.
func (s *Sequencer) tryJoinState(ctx context.Context, first bool, maxBytes int, prepare func([]broker.Publication) error, activate func(Joined)) (outcome, error) {
	j := new(joining)
	s.listen(j)
	defer s.unlisten(j)
	query := broker.StateQuery{Topic: s.topic, Retention: s.retention, MaxBytes: maxBytes}
	state, err := s.reader.histories.ReadState(ctx, query)
	if err != nil {
		return again, err
	}
	sortState(state.Publications)
	if err := prepare(state.Publications); err != nil {
		return unrecoverable, err
	}
	at := state.Position
	if err := s.awaitPosition(ctx, at); err != nil {
		return again, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := Joined{Recovered: first}
	if j.newEpoch || s.last.Epoch != at.Epoch || !s.merge(&begin, at.Offset, j.received) {
		return again, nil
	}
	begin.Position = s.last
	query.Cursor = state.Next
	begin.Rest = &StateRest{s: s, query: query, at: at, last: state.Next == ""}
	activate(begin)
	return joined, nil
}

// ReadState returns the whole state of a topic, in the order of offsets, and the position of its first part.
func ReadState(ctx context.Context, histories broker.Histories, topic string, r broker.Retention) (state []broker.Publication, at broker.Position, err error) {
	latest := map[string]broker.Publication{}
	q := broker.StateQuery{Topic: topic, Retention: r}
	for first := true; first || q.Cursor != ""; first = false {
		part, err := histories.ReadState(ctx, q)
		if err != nil {
			return nil, at, err
		}
		if first {
			at = part.Position
		}
		if part.Position.Epoch != at.Epoch {
			return nil, at, errFailedOver
		}
		for _, p := range part.Publications {
			if p.Position.Offset > latest[p.StateKey].Position.Offset {
				latest[p.StateKey] = p
			}
		}
		q.Cursor = part.Next
	}
	state = slices.Collect(maps.Values(latest))
	sortState(state)
	return state, at, nil
}

// awaitPosition waits until this node, which may be behind the store, has received what leads to a
// position of the store, or has found that it will not.
func (s *Sequencer) awaitPosition(ctx context.Context, at broker.Position) error {
	return s.await(ctx, func(compared bool) bool {
		return compared || s.last.Epoch == at.Epoch && s.last.Offset >= at.Offset
	})
}

// sortState sorts the publications of a state by their offsets.
func sortState(state []broker.Publication) {
	slices.SortFunc(state, func(a, b broker.Publication) int {
		return cmp.Compare(a.Position.Offset, b.Position.Offset)
	})
}
