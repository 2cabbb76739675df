package sequencer_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// A scriptedNode returns a page for every Read, and calls a function for every ReadState.
type scriptedNode struct {
	broker.Histories

	readState func() broker.StatePart

	mu   sync.Mutex
	page broker.Page
}

func (s *scriptedNode) Follow(string) {}

func (s *scriptedNode) Unfollow(string) {}

func (s *scriptedNode) Read(context.Context, broker.Query) (broker.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.page, nil
}

func (s *scriptedNode) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	return readEach(ctx, s.Read, b)
}

func (s *scriptedNode) set(page broker.Page) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.page = page
}

func (s *scriptedNode) ReadState(context.Context, broker.StateQuery) (broker.StatePart, error) {
	return s.readState(), nil
}

// startScripted returns a node whose topic is at a position, and its sequencer.
func startScripted(t *testing.T, at broker.Position) (*scriptedNode, *sequencer.Sequencer) {
	node := &scriptedNode{page: broker.Page{Position: at}}
	sink := sequencer.Sink{Deliver: func(broker.Publication) {}, Lost: func(sequencer.Loss) {}}
	seq := sequencer.New(sequencer.NewReader(node), "topic", broker.Retention{Messages: 10}, sink)
	t.Cleanup(seq.Close)
	seq.Following()
	return node, seq
}

func publication(epoch string, offset uint64, packet string) broker.Publication {
	return broker.Publication{Position: broker.Position{Epoch: epoch, Offset: offset}, Packet: []byte(packet)}
}

// TestJoinState_ReceivesWhatIsPublishedMeanwhile publishes before and after the moment of the state.
func TestJoinState_ReceivesWhatIsPublishedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, seq := startScripted(t, broker.Position{Epoch: "e1"})
		synctest.Wait()
		attempts := 0
		node.readState = func() broker.StatePart {
			attempts++
			seq.Publish(publication("e1", 1, "before"))
			seq.Publish(publication("e1", 2, "after"))
			return broker.StatePart{Position: broker.Position{Epoch: "e1", Offset: 1}}
		}
		var got sequencer.Joined
		prepare := func([]broker.Publication) error { return nil }
		require.NoError(t, seq.JoinState(t.Context(), broker.Position{}, nil, 1000, prepare, func(j sequencer.Joined) { got = j }))
		assert.True(t, got.Rest.Complete())
		got.Rest = nil
		assert.Equal(t, sequencer.Joined{
			Recovered: true, Position: broker.Position{Epoch: "e1", Offset: 2},
			Publications: []broker.Publication{publication("e1", 2, "after")},
		}, got)
		assert.Equal(t, 1, attempts)
	})
}

// TestJoinState_PublicationsOfAnEndedEpochAreNotMerged lets a store fail over while a subscriber
// joins: offset 99 of the old epoch is lost after it was delivered, and used again.
func TestJoinState_PublicationsOfAnEndedEpochAreNotMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, seq := startScripted(t, broker.Position{Epoch: "e1", Offset: 98})
		synctest.Wait()
		attempts := 0
		node.readState = func() broker.StatePart {
			if attempts++; attempts > 1 {
				return broker.StatePart{Position: broker.Position{Epoch: "e2", Offset: 99}}
			}
			seq.Publish(publication("e1", 99, "lost"))
			node.set(broker.Page{
				Position:     broker.Position{Epoch: "e2", Offset: 99},
				Previous:     broker.Position{Epoch: "e1", Offset: 98},
				Publications: []broker.Publication{publication("e2", 99, "stored")},
			})
			return broker.StatePart{Position: broker.Position{Epoch: "e2", Offset: 98}}
		}
		var got sequencer.Joined
		prepare := func([]broker.Publication) error { return nil }
		require.NoError(t, seq.JoinState(t.Context(), broker.Position{}, nil, 1000, prepare, func(j sequencer.Joined) { got = j }))
		for _, p := range got.Publications {
			assert.Equal(t, "stored", string(p.Packet))
		}
		assert.Equal(t, broker.Position{Epoch: "e2", Offset: 99}, got.Position)
		assert.NotNil(t, got.Rest)
	})
}

func TestJoinState_EndsWithTheErrorOfPrepare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, seq := startScripted(t, broker.Position{Epoch: "e1"})
		node.readState = func() broker.StatePart { return broker.StatePart{Position: broker.Position{Epoch: "e1"}} }
		tooLarge := errors.New("too large")
		err := seq.JoinState(t.Context(), broker.Position{}, nil, 1000, func([]broker.Publication) error { return tooLarge }, func(sequencer.Joined) {
			t.Error("activated")
		})
		assert.Equal(t, tooLarge, err)
	})
}

func TestJoinState_EndsAfterThreeAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, seq := startScripted(t, broker.Position{Epoch: "e1", Offset: 1})
		attempts := 0
		node.readState = func() broker.StatePart { // the node never receives offset 9
			attempts++
			return broker.StatePart{Position: broker.Position{Epoch: "e1", Offset: 9}}
		}
		err := seq.JoinState(t.Context(), broker.Position{}, nil, 1000, func([]broker.Publication) error { return nil }, func(sequencer.Joined) {
			t.Error("activated")
		})
		assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
		assert.Equal(t, 3, attempts)
	})
}
