package sequencer_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/memstore"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// Without the buffers of a Sequencer, nothing would be lost: it would wait for the idle check, and
// subscribers that return would load their state. These tests require that it does not come to that.

// TestSequencer_FillsGapsBeforeIdleCheck loses publications on their way to a node.
func TestSequencer_FillsGapsBeforeIdleCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSimStore(1, 1000)
		node := &simConn{store: store}
		store.conns = append(store.conns, node)
		var mu sync.Mutex // guards published, slowest and received
		published := map[uint64]time.Time{}
		slowest, received := time.Duration(0), 0
		node.mu.Lock()
		node.seq = sequencer.New(sequencer.NewReader(node), "topic", broker.Retention{Messages: 1000}, sequencer.Sink{
			Deliver: func(p broker.Publication) {
				mu.Lock()
				defer mu.Unlock()
				slowest = max(slowest, time.Since(published[p.Position.Offset]))
				received++
			},
			Lost: func(l sequencer.Loss) { assert.Fail(t, "lost", "%v", l) },
		})
		node.mu.Unlock()
		time.Sleep(time.Second) // it knows its position
		for n := range 1000 {
			mu.Lock()
			published[uint64(n+1)] = time.Now()
			mu.Unlock()
			store.append(fmt.Sprint(n))
			store.mu.Lock()
			store.healthy = n > 900 // the last ones show what is missing
			store.mu.Unlock()
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(time.Second)
		node.seq.Close()
		assert.Positive(t, store.faults["publication lost"])
		assert.Equal(t, 1000, received)
		assert.Less(t, slowest, 2*time.Second)
	})
}

// slowReads is a node whose answers to reads take longer than publications on their way to the
// node.
type slowReads struct{ *memstore.Node }

func (s slowReads) Read(ctx context.Context, q broker.Query) (broker.Page, error) {
	page, err := s.Node.Read(ctx, q)
	time.Sleep(20 * time.Millisecond)
	return page, err
}

func (s slowReads) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	pages, err := s.Node.ReadAll(ctx, b)
	time.Sleep(20 * time.Millisecond)
	return pages, err
}

// TestJoin_RecoversWhilePublishing lets subscribers return while the node receives publications
// between the reading of the history and its answer.
func TestJoin_RecoversWhilePublishing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hub memstore.Hub
		var s *sequencer.Sequencer
		created := make(chan struct{}) // closed when s is set
		last := uint64(0)              // which the subscriber has received; guarded by the sequencer's lock
		node := slowReads{hub.Connect(broker.HistoryCallbacks{
			Published: func(_ string, p broker.Publication) { <-created; s.Publish(p) },
			Following: func(string) { <-created; s.Following() },
		})}
		retention := broker.Retention{Messages: 10_000}
		s = sequencer.New(sequencer.NewReader(node), "topic", retention, sequencer.Sink{
			Deliver: func(p broker.Publication) { last = p.Position.Offset },
			Lost:    func(l sequencer.Loss) { assert.Fail(t, "lost", "%v", l) },
		})
		close(created)
		var publishers sync.WaitGroup
		publishers.Go(func() {
			for range 1000 {
				_, err := node.Append(t.Context(), broker.Append{Topic: "topic", Retention: retention})
				assert.NoError(t, err)
				time.Sleep(2 * time.Millisecond)
			}
		})
		var position broker.Position
		require.NoError(t, s.Join(t.Context(), position, sequencer.NewCatchup(node, 100, 1<<20).Topic(100), func(j sequencer.Joined) { position = j.Position }))
		for range 20 {
			time.Sleep(20 * time.Millisecond)
			require.NoError(t, s.Join(t.Context(), position, sequencer.NewCatchup(node, 100, 1<<20).Topic(100), func(j sequencer.Joined) {
				assert.True(t, j.Recovered, "the subscriber had to load its state")
				assert.Len(t, j.Publications, int(last-position.Offset))
				position = j.Position
			}))
		}
		publishers.Wait()
		s.Close()
	})
}
