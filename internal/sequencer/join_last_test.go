package sequencer_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// A latestNode calls a function for every Read of the latest publications.
type latestNode struct {
	scriptedNode

	latest func(limit int) broker.Page
}

func (n *latestNode) Read(ctx context.Context, q broker.Query) (broker.Page, error) {
	if q.Backward {
		return n.latest(q.Limit), nil
	}
	return n.scriptedNode.Read(ctx, q)
}

func startLatest(t *testing.T, at broker.Position) (*latestNode, *sequencer.Sequencer) {
	node := &latestNode{scriptedNode: scriptedNode{page: broker.Page{Position: at}}}
	sink := sequencer.Sink{Deliver: func(broker.Publication) {}, Lost: func(sequencer.Loss) {}}
	seq := sequencer.New(sequencer.NewReader(node), "topic", broker.Retention{Messages: 10}, sink)
	t.Cleanup(seq.Close)
	seq.Following()
	synctest.Wait()
	return node, seq
}

// TestJoinLast_ReceivesWhatIsPublishedMeanwhile publishes before and after the moment of the page. The first page is of an
// epoch that has ended.
func TestJoinLast_ReceivesWhatIsPublishedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, seq := startLatest(t, broker.Position{Epoch: "e1", Offset: 1})
		attempts := 0
		node.latest = func(limit int) broker.Page {
			assert.Equal(t, 2, limit)
			if attempts++; attempts == 1 {
				return broker.Page{Position: broker.Position{Epoch: "e0", Offset: 1}, Publications: []broker.Publication{publication("e0", 1, "old")}}
			}
			seq.Publish(publication("e1", 2, "before"))
			seq.Publish(publication("e1", 3, "after"))
			return broker.Page{
				Position:     broker.Position{Epoch: "e1", Offset: 2},
				Publications: []broker.Publication{publication("e1", 1, "first"), publication("e1", 2, "before")},
			}
		}
		var got sequencer.Joined
		require.NoError(t, seq.JoinLast(t.Context(), broker.Position{}, nil, 2, func(j sequencer.Joined) { got = j }))
		assert.Equal(t, sequencer.Joined{
			Recovered: true, Last: true, Position: broker.Position{Epoch: "e1", Offset: 3},
			Publications: []broker.Publication{publication("e1", 2, "before"), publication("e1", 3, "after")},
		}, got)
		assert.Equal(t, 2, attempts)
	})
}

func TestJoinLast_EndsAfterThreeAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, seq := startLatest(t, broker.Position{Epoch: "e1", Offset: 1})
		node.latest = func(int) broker.Page { return broker.Page{Position: broker.Position{Epoch: "e1", Offset: 9}} } // which never arrives
		err := seq.JoinLast(t.Context(), broker.Position{}, nil, 2, func(sequencer.Joined) { t.Error("activated") })
		assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
	})
}
