package sequencer_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// first returns the first position of a topic.
func (n *batchedNode) first(t *testing.T, topic string) broker.Position {
	page, err := n.HistoryNode.Read(t.Context(), broker.Query{Topic: topic, Retention: n.retention})
	require.NoError(t, err)
	return broker.Position{Epoch: page.Position.Epoch}
}

// catchupTopics adds all topics to a Catchup, before the first Join.
func (n *batchedNode) catchupTopics(c *sequencer.Catchup, limit int) (topics []*sequencer.CatchupTopic) {
	for range n.topics {
		topics = append(topics, c.Topic(limit))
	}
	return topics
}

// TestCatchup_SlowTopicDelaysNoOther lets topics of one client join at different times. The slowest one never
// does.
func TestCatchup_SlowTopicDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newBatchedNode(t, 4)
		since := map[string]broker.Position{}
		for _, topic := range n.topics {
			since[topic] = n.first(t, topic)
			n.publishOn(t, topic, 1)
		}
		catchup := sequencer.NewCatchup(n, 100, 1<<20)
		begun := time.Now()
		defer time.AfterFunc(time.Minute, catchup.Topic(1).Close).Stop()
		topics := n.catchupTopics(catchup, 1)
		var joins sync.WaitGroup
		for i, after := range []time.Duration{0, 10 * time.Millisecond, time.Second, 2 * time.Second} {
			from, topic := topics[i], n.topics[i]
			joins.Go(func() {
				defer from.Close()
				time.Sleep(after)
				assert.NoError(t, n.sequencers[topic].Join(t.Context(), since[topic], from, func(j sequencer.Joined) { assert.True(t, j.Recovered) }))
				want := after + 20*time.Millisecond
				if after < 100*time.Millisecond { // two topics together: first their positions
					want = 140 * time.Millisecond
				}
				assert.Equal(t, want, time.Since(begun), "a call of the store takes 20 ms")
			})
		}
		joins.Wait()
	})
}

// TestCatchup_TopicWithoutRoomTakesNothing has topics that miss more than the client can receive, in messages or
// bytes, or nothing at all.
func TestCatchup_TopicWithoutRoomTakesNothing(t *testing.T) {
	for _, tt := range []struct {
		name            string
		messages, bytes int
		recovered       []bool // of topics with 4, 1, 0 and 2 missed messages of 10 bytes
	}{
		{"nothing fits", 0, 0, []bool{false, false, true, false}},
		{"no bytes", 100, 9, []bool{false, false, true, false}},
		{"one message", 1, 1000, []bool{false, true, true, false}},
		{"three messages", 3, 1000, []bool{false, true, true, true}},
		{"bytes of three", 100, 69, []bool{false, true, true, true}},
		{"one too few", 6, 1000, []bool{false, true, true, true}},
		{"everything", 7, 70, []bool{true, true, true, true}},
	} {
		for _, kept := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, kept %t", tt.name, kept), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					assert.Equal(t, tt.recovered, recoveredTopics(t, tt.messages, tt.bytes, kept))
				})
			})
		}
	}
}

// recoveredTopics returns which topics with 4, 1, 0 and 2 missed messages a client recovers. If kept is true, the
// node has what they have missed.
func recoveredTopics(t *testing.T, messages, bytes int, kept bool) []bool {
	n := newBatchedNode(t, 4)
	missed, since := []int{4, 1, 0, 2}, make([]broker.Position, 4)
	for i, topic := range n.topics {
		since[i] = n.first(t, topic)
		n.publishOn(t, topic, missed[i])
	}
	if kept {
		for i, topic := range n.topics {
			n.returning(t, topic, since[i])
		}
	}
	n.reset()
	catchup := sequencer.NewCatchup(n, messages, bytes)
	recovered := make([]bool, 4)
	var joins sync.WaitGroup
	for i, from := range n.catchupTopics(catchup, 5) {
		topic := n.topics[i]
		joins.Go(func() {
			defer from.Close()
			assert.NoError(t, n.sequencers[topic].Join(t.Context(), since[i], from, func(j sequencer.Joined) {
				if recovered[i] = j.Recovered; j.Recovered {
					assert.Len(t, j.Publications, missed[i])
				}
			}))
		})
	}
	joins.Wait()
	assert.Equal(t, kept, n.calls() == 0)
	return recovered
}
