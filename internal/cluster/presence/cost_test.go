package presence_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

func TestNode_CostFollowsChanges(t *testing.T) {
	sizes := []int{4, 16, 100}
	if testing.Short() {
		sizes = sizes[:2]
	}
	t.Log("one interruption of all nodes; 50 topics, 10 members per node and topic; heartbeats not counted")
	t.Log("nodes  changes/node  seconds  packets  copies  bytes  copied bytes  heartbeat bytes/s and node")
	for _, nodes := range sizes {
		s := newRooms(t, nodes)
		for _, changes := range []bool{false, true} {
			for _, d := range []time.Duration{3 * time.Second, 30 * time.Second} {
				s.interrupt(d, changes)
				s.run(5 * time.Second)
				require.Empty(t, s.difference())
				sent, changed := s.sent(), 0
				if changes {
					changed = 2 * len(s.topics)
				}
				t.Logf("%5d  %12d  %7.0f  %7d  %6d  %5.2fMB  %10.2fMB  %d", nodes, changed, d.Seconds(),
					sent.packets, sent.copies, float64(sent.bytes)/1e6, float64(sent.copyBytes)/1e6,
					s.count[0].bytes/5/nodes)
				if !changes {
					assert.Zero(t, sent.packets, "equal versions exchange nothing")
					continue
				}
				assert.LessOrEqual(t, sent.packets, 3*nodes*nodes, "growth is quadratic with a small constant")
				if nodes == 16 {
					assert.LessOrEqual(t, sent.packets, 2000)
					assert.LessOrEqual(t, sent.bytes, 4_000_000)
				}
				s.run(20 * time.Second)
			}
		}
	}
}
