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

// first returns the first position of a topic.
func (n *batchedNode) first(t *testing.T, topic string) broker.Position {
	page, err := n.HistoryNode.Read(t.Context(), broker.Query{Topic: topic, Retention: n.retention})
	require.NoError(t, err)
	return broker.Position{Epoch: page.Position.Epoch}
}

// TestCatchup_SlowTopicDelaysNoOther lets topics of one client join at different times. The slowest one never
// does.
func TestCatchup_SlowTopicDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newBatchedNode(t, 4)
		catchup := sequencer.NewCatchup(n, 100, 1<<20)
		begun := time.Now()
		defer time.AfterFunc(time.Minute, catchup.Topic(1).Close).Stop()
		var joins sync.WaitGroup
		for i, after := range []time.Duration{0, 10 * time.Millisecond, time.Second, 2 * time.Second} {
			from, topic := catchup.Topic(1), n.topics[i]
			joins.Go(func() {
				defer from.Close()
				time.Sleep(after)
				assert.NoError(t, n.sequencers[topic].Join(t.Context(), n.first(t, topic), from, func(j sequencer.Joined) { assert.True(t, j.Recovered) }))
				want := max(after, 100*time.Millisecond) + 20*time.Millisecond
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
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newBatchedNode(t, 4)
				catchup := sequencer.NewCatchup(n, tt.messages, tt.bytes)
				recovered := make([]bool, 4)
				var joins sync.WaitGroup
				for i, missed := range []int{4, 1, 0, 2} {
					topic, from := n.topics[i], catchup.Topic(5)
					since := n.first(t, topic)
					n.publish(t, topic, missed, 10)
					n.sequencers[topic].Following()
					joins.Go(func() {
						defer from.Close()
						time.Sleep(time.Second) // until the node has what was published
						assert.NoError(t, n.sequencers[topic].Join(t.Context(), since, from, func(j sequencer.Joined) {
							if recovered[i] = j.Recovered; j.Recovered {
								assert.Len(t, j.Publications, missed)
							}
						}))
					})
				}
				joins.Wait()
				assert.Equal(t, tt.recovered, recovered)
			})
		})
	}
}
