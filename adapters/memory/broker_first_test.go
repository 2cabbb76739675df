package memory_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/sequencer"
)

func ignoringHandler() broker.Callbacks {
	return broker.Callbacks{
		Receive: func(string, string, []byte) {}, Subscribed: func(string) {}, MessagesLost: func(string, int) {},
		PresenceChanged: func(string, broker.Member, bool) {}, NodeLeft: func(string) {},
	}
}

// connectHistory adds a node that ignores what it receives.
func connectHistory(t *testing.T, b *memory.Broker) broker.HistoryNode {
	t.Helper()
	s := b.ConnectHistory(ignoringHandler(), broker.HistoryCallbacks{Published: func(string, broker.Publication) {}, Following: func(string) {}})
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	return s
}

// TestBroker_ReadingCreatesNoTopic reads invented names with little memory, of which a publication then
// needs a half.
func TestBroker_ReadingCreatesNoTopic(t *testing.T) {
	s := connectHistory(t, memory.NewBrokerMaxHistoryBytes(10_000))
	for i := range 10_000 {
		name := fmt.Sprint("invented ", i)
		page, err := s.Read(t.Context(), broker.Query{Topic: name})
		require.NoError(t, err)
		assert.NotEmpty(t, page.Position.Epoch)
		state, err := s.ReadState(t.Context(), broker.StateQuery{Topic: name})
		require.NoError(t, err)
		assert.Equal(t, page.Position, state.Position)
	}
	_, err := s.Append(t.Context(), broker.Append{Topic: "news", Packet: make([]byte, 5000)})
	require.NoError(t, err)
}

// A waitingNode has a sequencer for the topic news, and records what that hands over.
type waitingNode struct {
	*sequencer.Sequencer
	node     broker.HistoryNode
	received []broker.Position
	notices  []sequencer.Loss
}

func newWaitingNode(t *testing.T, b *memory.Broker) *waitingNode {
	t.Helper()
	n := &waitingNode{}
	ready := make(chan struct{}) // closed when n has its sequencer
	node := b.ConnectHistory(ignoringHandler(), broker.HistoryCallbacks{
		Published: func(_ string, p broker.Publication) { <-ready; n.Publish(p) },
		Following: func(string) { <-ready; n.Following() },
	})
	n.node = node
	n.Sequencer = sequencer.New(sequencer.NewReader(node), "news", broker.Retention{Messages: 10, Age: time.Minute}, sequencer.Sink{
		Deliver: func(p broker.Publication) { n.received = append(n.received, p.Position) },
		Lost:    func(l sequencer.Loss) { n.notices = append(n.notices, l) },
	})
	close(ready)
	t.Cleanup(func() { n.Close(); _ = node.Close(t.Context()) })
	return n
}

// join returns how a subscriber with a position continues.
func (n *waitingNode) join(t *testing.T, since broker.Position) (how sequencer.Joined) {
	t.Helper()
	require.NoError(t, n.Join(t.Context(), since, sequencer.NewCatchup(n.node, 100, 1<<20).Topic(100), func(j sequencer.Joined) { how = j }))
	return how
}

func publish(t *testing.T, s broker.HistoryNode, topic string) broker.Position {
	t.Helper()
	result, err := s.Append(t.Context(), broker.Append{Topic: topic, Retention: broker.Retention{Messages: 10, Age: time.Minute}})
	require.NoError(t, err)
	return result.Position
}

// TestBroker_WaitingNodesMissNothingWhileOthersExpire forgets other topics while two nodes wait.
func TestBroker_WaitingNodesMissNothingWhileOthersExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		other := connectHistory(t, b)
		nodes := []*waitingNode{newWaitingNode(t, b), newWaitingNode(t, b)}
		start := nodes[0].join(t, broker.Position{}).Position
		for day := range 10 {
			for i := range 20 {
				publish(t, other, fmt.Sprint("other ", day, " ", i))
				time.Sleep(time.Hour)
			}
		}
		for _, n := range nodes {
			assert.NotEmpty(t, n.notices)
			assert.LessOrEqual(t, len(n.notices), 9, "an epoch lasts for a day")
			for _, notice := range n.notices {
				assert.False(t, notice.Reset)
				assert.Zero(t, notice.EndedAt)
			}
		}
		now := nodes[1].join(t, broker.Position{}).Position
		assert.NotEqual(t, start.Epoch, now.Epoch)
		first := publish(t, other, "news")
		assert.Equal(t, broker.Position{Epoch: now.Epoch, Offset: 1}, first)
		synctest.Wait()
		for _, n := range nodes {
			assert.Equal(t, []broker.Position{first}, n.received)
		}
	})
}
