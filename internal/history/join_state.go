package history

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// errUnsettled ends a JoinState whose attempts all failed.
var errUnsettled = &errors.Error{Code: errors.Unavailable, Message: "the topic changed too much while its state was read"}

// JoinState is [Sequencer.Join] for a subscriber that needs the current state if it cannot receive
// what it has missed, or has no position. In this case it calls prepare, without locks, with the
// latest publication of each key in the order of their offsets, and then activate: its Joined has State
// set, and together with the publications of the last call of prepare describes how the subscriber
// continues. A key that is removed after the state was read is removed by one of the publications
// that follow.
//
// JoinState returns the error of prepare, and an UNAVAILABLE error if the topic changed too much in
// several attempts. It has not called activate then.
func (s *Sequencer) JoinState(ctx context.Context, since broker.Position, limit int, prepare func([]broker.Publication) error, activate func(Joined)) error {
	if err := s.awaitAttached(ctx); err != nil {
		return err
	}
	if since.Epoch != "" {
		if result, err := s.rejoin(ctx, since, limit, activate); result == joined || err != nil {
			return err
		}
	}
	result, err := s.attempt(ctx, func() (outcome, error) {
		return s.tryJoinState(ctx, since.Epoch == "", prepare, activate)
	})
	if err == nil && result == again {
		return errUnsettled
	}
	return err
}

// tryJoinState is one attempt of JoinState. The subscriber is registered before the state is read, so
// that it receives everything that is published after the state.
func (s *Sequencer) tryJoinState(ctx context.Context, first bool, prepare func([]broker.Publication) error, activate func(Joined)) (outcome, error) {
	j := s.register()
	defer s.unregister(j)
	state, err := s.session.ReadState(ctx, broker.StateQuery{Topic: s.topic, Retention: s.retention, MaxBytes: math.MaxInt32})
	if err != nil {
		return again, err
	}
	SortState(state.Publications)
	if err := prepare(state.Publications); err != nil {
		return unrecoverable, err
	}
	at := state.Position
	reached := func(compared bool) bool {
		return compared || s.last.Epoch == at.Epoch && s.last.Offset >= at.Offset
	}
	if err := s.await(ctx, reached); err != nil { // this node may be behind the store
		return again, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := Joined{State: true, Recovered: first}
	if j.newEpoch || s.last.Epoch != at.Epoch || !s.merge(&begin, at.Offset, j.received) {
		return again, nil
	}
	begin.Position = s.last
	activate(begin)
	return joined, nil
}

// SortState sorts the publications of a state by their offsets.
func SortState(state []broker.Publication) {
	slices.SortFunc(state, func(a, b broker.Publication) int {
		return cmp.Compare(a.Position.Offset, b.Position.Offset)
	})
}
