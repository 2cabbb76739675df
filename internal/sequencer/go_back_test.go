package sequencer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// An olderNode reads the store as it was when a topic had fewer publications.
type olderNode struct {
	broker.HistoryNode
	top   atomic.Uint64 // 0 is the present one
	epoch atomic.Value  // of the last query
}

func (n *olderNode) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	n.epoch.Store(b.Topics[0].Epoch)
	pages, err := n.HistoryNode.ReadAll(ctx, b)
	if top := n.top.Load(); top > 0 && err == nil {
		pages[0].Position.Offset, pages[0].Publications = top, nil
	}
	return pages, err
}

// TestSequencer_StoreThatGoesBackIsALoss restores a copy of the store that keeps the epoch.
func TestSequencer_StoreThatGoesBackIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &olderNode{HistoryNode: memory.NewBroker().ConnectHistory(ignoringHandler(), broker.HistoryCallbacks{})}
		var delivered []uint64
		var lost []sequencer.Loss
		s := sequencer.New(sequencer.NewReader(node), "news", broker.Retention{Messages: 10}, sequencer.Sink{
			Deliver: func(p broker.Publication) { delivered = append(delivered, p.Position.Offset) },
			Lost:    func(l sequencer.Loss) { lost = append(lost, l) },
		})
		defer func() {
			s.Close()
			require.NoError(t, node.Close(context.Background()))
		}()
		s.Following()
		synctest.Wait()
		var last broker.Position
		for range 3 {
			appended, err := node.Append(t.Context(), broker.Append{Topic: "news", Retention: broker.Retention{Messages: 10}})
			require.NoError(t, err)
			last = appended.Position
			s.Publish(broker.Publication{Position: last})
		}
		node.top.Store(1)
		time.Sleep(time.Minute)
		assert.Equal(t, last.Epoch, node.epoch.Load(), "the store learns which epoch the offset belongs to")
		again := broker.Position{Epoch: last.Epoch, Offset: 2}
		s.WithLock(func() {
			require.Len(t, lost, 1)
			assert.Equal(t, sequencer.Loss{Reset: true, Position: broker.Position{Epoch: last.Epoch, Offset: 1}}, lost[0])
		})
		s.Publish(broker.Publication{Position: again})
		s.WithLock(func() { assert.Equal(t, []uint64{1, 2, 3, 2}, delivered) })
	})
}
