package presence_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/cluster/presence"
	"github.com/penstock-go/penstock/internal/testscale"
)

// newRooms starts nodes that all track 50 topics, with ten members per node and topic, and waits
// until they know each other.
func newRooms(t testing.TB, nodes int) *simulation {
	const members, topics = 10, 50
	s := newSimulation(t, 1, topics)
	for range nodes {
		s.start()
	}
	s.run(2 * time.Second)
	for _, n := range s.order {
		for _, topic := range s.topics {
			n.track(topic)
			for range members {
				n.ids++
				n.join(topic, fmt.Sprintf("%s-%d", n.name, n.ids), `{"connId":"c0123456789","userId":"u0123456789"}`)
			}
		}
	}
	s.run(30 * time.Second)
	require.Empty(t, s.difference())
	return s
}

// interrupt separates all nodes for d. With changes, each node then has two changes in each topic
// that the others have not received.
func (s *simulation) interrupt(d time.Duration, changes bool) {
	for _, n := range s.order {
		n.mute, n.deaf = true, true
	}
	s.run(d)
	for _, n := range s.order {
		for _, topic := range s.topics {
			if !changes {
				break
			}
			n.ids++
			n.join(topic, fmt.Sprintf("%s-%d", n.name, n.ids), `{"connId":"c0123456789","userId":"u0123456789"}`)
			n.leave(topic, fmt.Sprintf("%s-%d", n.name, n.ids-1))
		}
	}
	for _, n := range s.order {
		n.mute, n.deaf = false, false
	}
	s.resetCount()
}

// TestNode_CostFollowsChanges logs what an interruption of all nodes costs. In a soak test, 100 nodes
// hold five million members, which takes minutes.
func TestNode_CostFollowsChanges(t *testing.T) {
	sizes := testscale.Tiers([]int{4}, []int{4, 16}, []int{4, 16, 100})
	t.Log("one interruption of all nodes; 50 topics, 10 members per node and topic; heartbeats are not counted")
	t.Log("nodes  changes/node  seconds  packets  copies  bytes    bytes copied  heartbeat bytes/s and node")
	for _, nodes := range sizes {
		s := newRooms(t, nodes)
		for _, changes := range []int{0, 100} {
			for _, d := range []time.Duration{3 * time.Second, 30 * time.Second} {
				s.interrupt(d, changes > 0)
				s.run(5 * time.Second)
				require.Empty(t, s.difference())
				sent := s.sent()
				t.Logf("%5d  %12d  %7.0f  %7d  %6d  %5.2f MB  %9.2f MB  %d", nodes, changes, d.Seconds(),
					sent.packets, sent.copies, float64(sent.bytes)/1e6, float64(sent.copyBytes)/1e6,
					s.count[0].bytes/5/nodes)
				if changes == 0 {
					assert.Zero(t, sent.packets, "equal versions exchange nothing")
					continue
				}
				assert.LessOrEqual(t, sent.packets, 3*nodes*nodes, "growth is quadratic with a small constant")
				if nodes == 16 {
					assert.LessOrEqual(t, sent.packets, 2000)
					assert.LessOrEqual(t, sent.bytes, 4_000_000)
				}
			}
		}
	}
}

// TestNode_RestartCostsOneStatePerPeer replaces one of 16 nodes.
func TestNode_RestartCostsOneStatePerPeer(t *testing.T) {
	testscale.FullOnly(t, "TestNode_CostFollowsChanges")
	s := newRooms(t, 16)
	s.stop(s.order[0])
	n := s.start()
	for _, topic := range s.topics {
		n.track(topic)
	}
	s.resetCount()
	s.run(10 * time.Second)
	require.Empty(t, s.difference())
	sent := s.sent()
	t.Logf("%d packets, %d copies, %.2f MB", sent.packets, sent.copies, float64(sent.bytes)/1e6)
	assert.LessOrEqual(t, sent.packets, 60)
}

// TestNode_TrackCostsOneQuery shows that nodes without members do not answer.
func TestNode_TrackCostsOneQuery(t *testing.T) {
	s := newSimulation(t, 1, 10)
	for range 16 {
		s.start()
	}
	s.run(5 * time.Second)
	s.order[1].join(s.topics[0], "m", "")
	s.resetCount()
	for _, topic := range s.topics {
		s.order[0].track(topic)
	}
	s.run(300 * time.Millisecond)
	require.Len(t, s.order[0].node.Members(s.topics[0]), 1)
	s.run(5 * time.Second)
	require.Empty(t, s.difference())
	assert.Equal(t, 1, s.count[presence.KindQuery].packets)
	assert.Equal(t, 1, s.count[presence.KindState].packets)
	assert.Nil(t, s.count[presence.KindAsk])
	assert.Equal(t, 1, presence.Records(s.order[0].node), "topics without members need no record")
}

// TestNode_TrackIsAnsweredDirectlyInLargeClusters shows that a topic without members is no part of the
// heartbeats to all nodes.
func TestNode_TrackIsAnsweredDirectlyInLargeClusters(t *testing.T) {
	const nodes = 40
	s := newSimulation(t, 1, 10)
	for range nodes {
		s.start()
	}
	s.run(5 * time.Second)
	s.order[1].join(s.topics[0], "m", "")
	s.run(20 * time.Second)
	s.resetCount()
	s.run(5 * time.Second)
	idle := s.count[0].bytes
	s.resetCount()
	for _, topic := range s.topics {
		s.order[0].track(topic)
	}
	s.run(300 * time.Millisecond)
	require.Len(t, s.order[0].node.Members(s.topics[0]), 1)
	s.run(4700 * time.Millisecond)
	require.Empty(t, s.difference())
	assert.Equal(t, nodes-1, s.count[presence.KindState].packets)
	assert.Equal(t, idle, s.count[0].bytes, "bytes of heartbeats")
	assert.Equal(t, 1, presence.Records(s.order[0].node), "topics without members need no record")
}

// TestNode_HeartbeatsAreShorterInLargeClusters counts those of a node with members in 50 topics, each of
// which changes.
func TestNode_HeartbeatsAreShorterInLargeClusters(t *testing.T) {
	heartbeats := func(nodes int) (size int) {
		s := newSimulation(t, 1, 50)
		for range nodes {
			s.start()
		}
		n := s.order[0]
		for _, topic := range s.topics {
			n.join(topic, "m", "")
		}
		s.run(20 * time.Second)
		for _, topic := range s.topics {
			n.join(topic, "visitor", "")
		}
		before := s.now
		for ; s.now.Sub(before) < 20*time.Second; s.run(heartbeatInterval) {
			size += len(n.node.Heartbeat(s.now))
		}
		return size
	}
	few, many := heartbeats(4), heartbeats(48)
	assert.Less(t, many, few/2)
}
