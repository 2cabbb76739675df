package sequencer_test

import (
	"context"
	"crypto/rand"
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

// A countingNode counts reads.
type countingNode struct {
	broker.HistoryNode
	reads   atomic.Int64
	flushed atomic.Pointer[broker.HistoryNode] // that of an empty store, which is read instead
}

func (s *countingNode) Read(ctx context.Context, q broker.Query) (broker.Page, error) {
	s.reads.Add(1)
	if flushed := s.flushed.Load(); flushed != nil {
		return (*flushed).Read(ctx, q)
	}
	return s.HistoryNode.Read(ctx, q)
}

func (s *countingNode) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	s.reads.Add(1)
	if flushed := s.flushed.Load(); flushed != nil {
		return (*flushed).ReadAll(ctx, b)
	}
	return s.HistoryNode.ReadAll(ctx, b)
}

// startIdle returns a sequencer of topic news, and its node. Both are closed when the test ends.
func startIdle(t *testing.T, r broker.Retention, sink sequencer.Sink) (*sequencer.Sequencer, *countingNode) {
	var s *sequencer.Sequencer
	ready := make(chan struct{}) // closed when s is set
	node := &countingNode{HistoryNode: memory.NewBroker().ConnectHistory(ignoringHandler(), broker.HistoryCallbacks{
		Published: func(_ string, p broker.Publication) { <-ready; s.Publish(p) },
		Following: func(string) { <-ready; s.Following() },
	})}
	s = sequencer.New(sequencer.NewReader(node), "news", r, sink)
	close(ready)
	t.Cleanup(func() {
		s.Close()
		require.NoError(t, node.Close(context.Background()))
	})
	time.Sleep(time.Second) // until it knows its position
	return s, node
}

// TestSequencer_QuietTopicKeepsItsEpoch publishes once every three days. The store forgets a topic that
// no node has read for a day and the age of its publications.
func TestSequencer_QuietTopicKeepsItsEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := broker.Retention{Messages: 10, Age: time.Minute}
		var delivered []broker.Position
		_, node := startIdle(t, r, sequencer.Sink{
			Deliver: func(p broker.Publication) { delivered = append(delivered, p.Position) },
			Lost:    func(l sequencer.Loss) { t.Errorf("a notice after %d publications: %+v", len(delivered), l) },
		})
		for range 3 {
			_, err := node.Append(t.Context(), broker.Append{Topic: "news", Retention: r})
			require.NoError(t, err)
			_, err = node.Append(t.Context(), broker.Append{Topic: rand.Text()}) // the store looks for what it can forget
			require.NoError(t, err)
			time.Sleep(72 * time.Hour)
		}
		require.Len(t, delivered, 3)
		for i, at := range delivered {
			assert.Equal(t, broker.Position{Epoch: delivered[0].Epoch, Offset: uint64(i + 1)}, at)
		}
	})
}

// TestSequencer_NoticesThatQuietTopicWasLost deletes everything in the store, as FLUSHALL does, at a
// moment at which nothing is published. The documentation promises a check every 2 minutes or little more.
func TestSequencer_NoticesThatQuietTopicWasLost(t *testing.T) {
	for _, quiet := range []time.Duration{time.Second, 20 * time.Second, time.Hour, 25 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var lost []sequencer.Loss
			s, node := startIdle(t, broker.Retention{Messages: 10}, sequencer.Sink{
				Deliver: func(broker.Publication) {}, Lost: func(l sequencer.Loss) { lost = append(lost, l) },
			})
			_, err := node.Append(t.Context(), broker.Append{Topic: "news"})
			require.NoError(t, err)
			time.Sleep(quiet)
			empty := memory.NewBroker().ConnectHistory(ignoringHandler(), broker.HistoryCallbacks{})
			node.flushed.Store(&empty)
			time.Sleep(126 * time.Second)
			s.WithLock(func() {
				require.Len(t, lost, 1, quiet)
				assert.True(t, lost[0].Reset)
			})
		})
	}
}

// TestSequencer_ReadsIdleTopic waits for an hour, in which nothing is published.
func TestSequencer_ReadsIdleTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, node := startIdle(t, broker.Retention{Messages: 10}, sequencer.Sink{})
		time.Sleep(time.Hour)
		s.Close()
		reads := node.reads.Load()
		assert.InDelta(t, 4+3600/120, reads, 10, "after 10, 20, 40, 80 and then every 120 seconds, on average")
		time.Sleep(time.Hour)
		assert.Equal(t, reads, node.reads.Load())
	})
}
