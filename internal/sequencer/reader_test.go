package sequencer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/testscale"
)

// A batchedNode has a sequencer for each of many topics, and records its calls of the store, which take 20 ms.
type batchedNode struct {
	broker.HistoryNode
	reader     *sequencer.Reader
	topics     []string
	retention  broker.Retention
	sequencers map[string]*sequencer.Sequencer

	mu        sync.Mutex
	delivered map[string]int
	lost      []sequencer.Loss
	away      map[string]bool // topics that cannot be read
	singles   int             // calls of Read
	batches   []time.Time     // calls of ReadAll
	positions int             // topics of which only the position was read
	pages     int             // other topics
}

func newBatchedNode(t *testing.T, topics int) *batchedNode {
	return newBatchedNodeRetaining(t, topics, broker.Retention{Messages: 1000})
}

func newBatchedNodeRetaining(t *testing.T, topics int, retention broker.Retention) *batchedNode {
	n := &batchedNode{retention: retention, sequencers: map[string]*sequencer.Sequencer{}, delivered: map[string]int{}, away: map[string]bool{}}
	ready := make(chan struct{}) // closed when the sequencers exist
	n.HistoryNode = memory.NewBroker().ConnectHistory(ignoringHandler(), broker.HistoryCallbacks{
		Published: func(topic string, p broker.Publication) { <-ready; n.sequencers[topic].Publish(p) },
		Following: func(topic string) { <-ready; n.sequencers[topic].Following() },
	})
	n.reader = sequencer.NewReader(n)
	for i := range topics {
		topic := fmt.Sprint("room/", i)
		n.topics = append(n.topics, topic)
		n.sequencers[topic] = sequencer.New(n.reader, topic, n.retention, sequencer.Sink{
			Deliver: func(broker.Publication) { n.locked(func() { n.delivered[topic]++ }) },
			Lost:    func(l sequencer.Loss) { n.locked(func() { n.lost = append(n.lost, l) }) },
		})
	}
	close(ready)
	t.Cleanup(func() {
		for _, s := range n.sequencers {
			s.Close()
		}
		require.NoError(t, n.Close(context.Background()))
		time.Sleep(time.Second) // Close does not wait for a read, and virtual time ends with the test.
		assert.Empty(t, n.lost)
	})
	time.Sleep(time.Second)
	return n
}

func (n *batchedNode) locked(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *batchedNode) reset() {
	n.locked(func() { n.singles, n.batches, n.positions, n.pages = 0, nil, 0, 0 })
}

func (n *batchedNode) Read(ctx context.Context, q broker.Query) (broker.Page, error) {
	n.locked(func() { n.singles++ })
	time.Sleep(20 * time.Millisecond)
	return n.HistoryNode.Read(ctx, q)
}

func (n *batchedNode) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	time.Sleep(20 * time.Millisecond)
	pages, err := n.HistoryNode.ReadAll(ctx, b)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.batches = append(n.batches, time.Now())
	for i, q := range b.Topics {
		if q.Limit == 0 {
			n.positions++
		} else {
			n.pages++
		}
		if n.away[q.Topic] {
			pages[i] = broker.BatchPage{Err: errors.Errorf(errors.Unavailable, "the store is away")}
		}
	}
	return pages, err
}

// publish stores publications that do not reach the sequencer.
func (n *batchedNode) publish(t *testing.T, topic string, number, bytes int) {
	n.Unfollow(topic)
	for range number {
		_, err := n.Append(t.Context(), broker.Append{Topic: topic, Retention: n.retention, Packet: make([]byte, bytes)})
		require.NoError(t, err)
	}
}

// publishOn stores publications of 10 bytes that the node hands over.
func (n *batchedNode) publishOn(t *testing.T, topic string, number int) {
	n.publish(t, topic, number, 10)
	n.Follow(topic) // it reads what was published meanwhile
	time.Sleep(time.Second)
}

// TestReader_TopicsOfABlipShareReads reports all topics as followed again, as after an interruption.
func TestReader_TopicsOfABlipShareReads(t *testing.T) {
	topics := testscale.Tiers(100, 1000, 5000)
	for _, tt := range []struct {
		name                      string
		behind, number, bytes     int // topics that have missed publications, how many, and of which length
		batches, singles, inPages int
	}{
		{"nothing was missed", 0, 0, 0, 2, 0, 0},
		{"some topics were missed", 10, 3, 100, 3, 0, 10},
		{"too many messages for a batch", 30, 256, 10, 3, 14, 30},
		{"too long for a batch", 3, 2, 400_000, 3, 2, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newBatchedNode(t, topics)
				behind := n.topics[1 : 1+tt.behind]
				for _, topic := range behind {
					n.publish(t, topic, tt.number, tt.bytes)
				}
				n.reset()
				n.sequencers[n.topics[0]].Following()
				synctest.Wait() // until it is being read
				for _, topic := range n.topics[1:] {
					n.sequencers[topic].Following()
				}
				time.Sleep(2 * time.Second)
				n.mu.Lock()
				defer n.mu.Unlock()
				for _, topic := range behind {
					assert.Equal(t, tt.number, n.delivered[topic], topic)
				}
				assert.Equal(t, topics, n.positions)
				assert.Equal(t, []int{tt.batches, tt.inPages, tt.singles}, []int{len(n.batches), n.pages, n.singles},
					"batches, pages in them, and pages that do not fit")
			})
		})
	}
}

// TestReader_IdleTopicsAreComparedTogether publishes on random topics for half an hour, and then nothing for an
// hour.
func TestReader_IdleTopicsAreComparedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topics := testscale.Tiers(50, 250, 2000)
		n := newBatchedNode(t, topics)
		n.reset()
		last := map[string]time.Time{}
		for range 30 * 60 / 2 {
			topic := n.topics[rand.IntN(topics/2)] // the others are idle
			_, err := n.Append(t.Context(), broker.Append{Topic: topic, Retention: n.retention})
			require.NoError(t, err)
			last[topic] = time.Now()
			time.Sleep(2 * time.Second)
		}
		n.locked(func() { assert.LessOrEqual(t, len(n.batches), 30*60/5, "at most one every 5 seconds") })
		time.Sleep(10 * time.Minute) // all intervals have grown
		n.reset()
		time.Sleep(time.Hour)
		n.mu.Lock()
		defer n.mu.Unlock()
		assert.LessOrEqual(t, len(n.batches), 60, "at most one per minute")
		assert.GreaterOrEqual(t, n.positions, 60*60/125*topics, "each topic every 125 seconds")
		assert.Zero(t, n.pages+n.singles)
	})
}

// TestReader_TopicThatCannotBeReadDelaysNoOther has topics that cannot be read for a minute.
func TestReader_TopicThatCannotBeReadDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newBatchedNode(t, 10)
		for _, topic := range n.topics {
			n.publish(t, topic, 1, 10)
		}
		n.reset()
		n.locked(func() { n.away["room/0"], n.away["room/1"] = true, true })
		for _, topic := range n.topics {
			n.sequencers[topic].Following()
		}
		time.Sleep(time.Second)
		n.locked(func() { assert.Len(t, n.delivered, 8) })
		time.Sleep(time.Minute)
		n.locked(func() {
			assert.Len(t, n.delivered, 8)
			assert.InDelta(t, 47, len(n.batches), 10, "every 1.5 seconds on average, after shorter times")
			clear(n.away)
		})
		time.Sleep(8 * time.Second)
		n.locked(func() { assert.Len(t, n.delivered, 10) })
	})
}
