package sequencer_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// returning joins a topic as a client with a position, which can receive up to 1,000 publications, and returns
// the offsets of those that it has missed. It must recover.
func (n *batchedNode) returning(t *testing.T, topic string, since broker.Position) (offsets []uint64) {
	from := sequencer.NewCatchup(n, 1000, 4<<20).Topic(1000)
	defer from.Close()
	assert.NoError(t, n.sequencers[topic].Join(t.Context(), since, from, func(j sequencer.Joined) {
		assert.True(t, j.Recovered)
		for _, p := range j.Publications {
			offsets = append(offsets, p.Position.Offset)
		}
	}))
	return offsets
}

// append stores a publication and waits until the node has handed it over.
func (n *batchedNode) append(t *testing.T, topic string, bytes int) {
	_, err := n.Append(t.Context(), broker.Append{Topic: topic, Retention: n.retention, Packet: make([]byte, bytes)})
	require.NoError(t, err)
	synctest.Wait()
}

func (n *batchedNode) calls() (calls int) {
	n.locked(func() { calls = len(n.batches) + n.singles })
	return calls
}

// TestRecent_ReturningClientsShareARead lets clients with different positions return one after the other, while
// there are publications.
func TestRecent_ReturningClientsShareARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newBatchedNode(t, 2)
		topic := n.topics[0]
		since := n.first(t, topic)
		n.publishOn(t, topic, 3)
		n.reset()
		assert.Equal(t, []uint64{1, 2, 3}, n.returning(t, topic, since))
		n.append(t, topic, 10)
		assert.Equal(t, []uint64{1, 2, 3, 4}, n.returning(t, topic, since))
		since.Offset = 3
		assert.Equal(t, []uint64{4}, n.returning(t, topic, since))
		assert.Equal(t, 1, n.calls(), "only the first one has read")

		time.Sleep(5*time.Second + time.Millisecond)
		assert.Equal(t, []uint64{4}, n.returning(t, topic, since))
		assert.Equal(t, 2, n.calls(), "what is older has been dropped")
		since.Offset = 1
		assert.Equal(t, []uint64{2, 3, 4}, n.returning(t, topic, since))
		assert.Equal(t, 3, n.calls(), "this one has missed more")
		since.Offset = 2
		assert.Equal(t, []uint64{3, 4}, n.returning(t, topic, since))
		since.Offset = 4
		assert.Empty(t, n.returning(t, topic, since))
		assert.Equal(t, 3, n.calls())
	})
}

// TestRecent_ShortAge has a history that keeps messages for ten seconds.
func TestRecent_ShortAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newBatchedNodeRetaining(t, 1, broker.Retention{Messages: 1000, Age: 10 * time.Second})
		topic := n.topics[0]
		since := n.first(t, topic)
		n.publishOn(t, topic, 1)
		n.reset()
		for calls := range 2 {
			n.returning(t, topic, since)
			time.Sleep(900 * time.Millisecond)
			n.returning(t, topic, since)
			assert.Equal(t, calls+1, n.calls())
			time.Sleep(200 * time.Millisecond)
		}
	})
}

// TestRecent_KeepsPublicationsWhoseBufferIsUsedAgain passes on a publication as a broker does.
func TestRecent_KeepsPublicationsWhoseBufferIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newBatchedNode(t, 1)
		topic := n.topics[0]
		since := n.first(t, topic)
		n.publishOn(t, topic, 1)
		n.returning(t, topic, since)
		buffer := []byte("second")
		since.Offset = 1
		n.sequencers[topic].Publish(broker.Publication{Position: broker.Position{Epoch: since.Epoch, Offset: 2}, Packet: buffer})
		copy(buffer, "abcdef")
		from := sequencer.NewCatchup(n, 10, 1000).Topic(10)
		defer from.Close()
		require.NoError(t, n.sequencers[topic].Join(t.Context(), since, from, func(j sequencer.Joined) {
			require.Len(t, j.Publications, 1)
			assert.Equal(t, "second", string(j.Publications[0].Packet))
		}))
	})
}

// TestRecent_SubscribersDoNotShareWhatTheyAppend appends to what one client has missed.
func TestRecent_SubscribersDoNotShareWhatTheyAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newBatchedNode(t, 1)
		topic := n.topics[0]
		since := n.first(t, topic)
		n.publishOn(t, topic, 3)
		n.returning(t, topic, since)
		n.append(t, topic, 10)
		from := sequencer.NewCatchup(n, 10, 1000).Topic(10)
		defer from.Close()
		var missed []broker.Publication
		require.NoError(t, n.sequencers[topic].Join(t.Context(), since, from, func(j sequencer.Joined) { missed = j.Publications }))
		require.Len(t, missed, 4)
		n.append(t, topic, 10)
		_ = append(missed, broker.Publication{})
		assert.Equal(t, []uint64{1, 2, 3, 4, 5}, n.returning(t, topic, since))
	})
}

// TestRecent_UseDoesNotExtendTheTime lets a client begin to return before what it has missed is dropped, and wait
// for another topic until after that.
func TestRecent_UseDoesNotExtendTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newBatchedNode(t, 2)
		since := map[string]broker.Position{}
		for _, topic := range n.topics {
			since[topic] = n.first(t, topic)
			n.publishOn(t, topic, 1)
		}
		kept := n.topics[0]
		n.returning(t, kept, since[kept])
		time.Sleep(5*time.Second - 30*time.Millisecond)
		n.reset()
		catchup := sequencer.NewCatchup(n, 10, 1000)
		var joins sync.WaitGroup
		for i, from := range n.catchupTopics(catchup, 10) {
			topic := n.topics[i]
			joins.Go(func() {
				defer from.Close()
				assert.NoError(t, n.sequencers[topic].Join(t.Context(), since[topic], from, func(j sequencer.Joined) {
					assert.Len(t, j.Publications, 1)
				}))
			})
		}
		joins.Wait() // two calls for the other topic: its position, and what was missed
		assert.Equal(t, 2, n.calls())
		n.returning(t, kept, since[kept])
		assert.Equal(t, 3, n.calls())
	})
}

// TestRecent_WithoutMissedPublicationsNothingIsRead has clients whose store is slow.
func TestRecent_WithoutMissedPublicationsNothingIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newBatchedNode(t, 1)
		topic := n.topics[0]
		since := n.first(t, topic)
		n.reset()
		begun := time.Now()
		var clients sync.WaitGroup
		for range 100 {
			clients.Go(func() { assert.Empty(t, n.returning(t, topic, since)) })
		}
		clients.Wait()
		assert.Zero(t, time.Since(begun))
		assert.Zero(t, n.calls())
	})
}

// TestRecent_IsBounded reads more than a node keeps, in topics of 1 MiB.
func TestRecent_IsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newBatchedNode(t, 20)
		since := map[string]broker.Position{}
		for _, topic := range n.topics {
			since[topic] = n.first(t, topic)
			n.publish(t, topic, 4, 256<<10)
			n.Follow(topic)
		}
		time.Sleep(time.Second)
		again := func() int {
			n.reset()
			for _, topic := range n.topics {
				assert.Len(t, n.returning(t, topic, since[topic]), 4)
			}
			return n.calls()
		}
		assert.Equal(t, 20, again())
		assert.Equal(t, 5, again(), "15 of 16 MiB are kept, since publications count with what they need besides")
		n.append(t, n.topics[0], 1<<20) // too much: what the topic has is dropped
		since[n.topics[0]] = broker.Position{Epoch: since[n.topics[0]].Epoch, Offset: 1}
		assert.Equal(t, 6, again(), "this topic is read once more")
		time.Sleep(5*time.Second + time.Millisecond)
		assert.Equal(t, 20, again())
		for _, topic := range n.topics {
			n.sequencers[topic].Close()
			delete(n.sequencers, topic)
		}
		assert.Zero(t, n.reader.RecentBytes())
	})
}

// TestRecent_PositionOfAnEndedEpochIsRead lets a client return whose offset the node has used again.
func TestRecent_PositionOfAnEndedEpochIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSimStore(1, 10)
		store.healthy = true
		node := store.connect(sequencer.Sink{Deliver: func(broker.Publication) {}, Lost: func(sequencer.Loss) {}})
		defer node.seq.Close()
		join := func(since broker.Position) (joined sequencer.Joined) {
			catchup := sequencer.NewCatchup(node, 10, 1<<20).Topic(10)
			require.NoError(t, node.seq.Join(t.Context(), since, catchup, func(j sequencer.Joined) { joined = j }))
			return joined
		}
		join(broker.Position{})
		for _, packet := range []string{"a", "b", "lost"} {
			store.append(packet)
		}
		time.Sleep(time.Second)
		before, _ := node.seq.Position()
		store.failOver(1)
		store.append("c")
		node.seq.Following()
		time.Sleep(time.Second)
		last, _ := node.seq.Position()
		require.Equal(t, broker.Position{Epoch: "e1", Offset: before.Offset}, last)
		joined := join(before)
		assert.True(t, joined.Recovered)
		assert.Equal(t, last, joined.Position)
		require.Len(t, joined.Publications, 1)
		assert.Equal(t, "c", string(joined.Publications[0].Packet))
	})
}
