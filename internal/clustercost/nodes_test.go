package clustercost_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/cluster/enginetest"
)

// memberData is about as long as what a router publishes about a member.
const memberData = `{"connId":"c0123456789012345678901","userId":"u0123456789"}`

// rooms are topics that all nodes follow. Each node has members in as many others as ownTopics, which no other node follows.
const (
	rooms     = 10
	ownTopics = 40
)

// A testbed is a cluster of nodes without routers, in a bubble.
type testbed struct {
	t     *testing.T
	size  int // of the cluster
	meter *meter
	nodes []broker.Node
	idle  cost // per second, while nothing happens
}

// members says which members the nodes have.
type members int

const (
	nobody       members = iota
	inRooms              // one in one of the rooms
	inManyTopics         // and one in each of the own topics
)

// newTestbed starts nodes with members.
func newTestbed(t *testing.T, nodes int, members members) *testbed {
	b := &testbed{t: t, size: nodes, meter: newMeter()}
	for i := range nodes {
		b.nodes = append(b.nodes, b.start(i, members))
	}
	t.Cleanup(func() {
		for _, n := range b.nodes {
			n.(*cluster.Node).Kill()
		}
		time.Sleep(time.Minute)
	})
	b.rest()
	return b
}

// quiet is how long a cluster is still busy with a change. Heartbeats list it for a shorter time if many nodes read them.
func (b *testbed) quiet() time.Duration {
	if b.size < 100 {
		return 16 * time.Second
	}
	return 6 * time.Second
}

// rest waits until all is quiet, and measures what the cluster then costs.
func (b *testbed) rest() {
	time.Sleep(b.quiet() + 10*time.Millisecond) // not at the moment of a heartbeat
	const seconds = 5
	before := b.meter.total()
	time.Sleep(seconds * time.Second)
	b.idle = b.meter.total().plus(before, -1).over(seconds)
}

// start starts a node. With members, it follows the rooms.
func (b *testbed) start(number int, members members) broker.Node {
	n := cluster.New(b.meter).Connect(broker.Callbacks{})
	if members == nobody {
		return n
	}
	for i := range rooms {
		n.Subscribe(roomName(i))
		n.Track(roomName(i))
	}
	n.Join(roomName(number), fmt.Sprint("member", number), memberData)
	for i := range ownTopics {
		if members == inManyTopics {
			n.Join(fmt.Sprintf("own/%04d/%03d", number, i), "member", memberData)
		}
	}
	return n
}

func roomName(i int) string { return fmt.Sprintf("room/%06d", i%rooms) }

// costOf returns what some units of work cost, beyond what the cluster costs in that time anyway.
func (b *testbed) costOf(units int, work func()) cost {
	before, began := b.meter.total(), time.Now()
	work()
	time.Sleep(b.quiet() - time.Since(began)%time.Second) // whole seconds, of which each has a heartbeat
	idle := b.idle
	idle.calls = 0 // those are rare, and at any time
	return b.meter.total().plus(before, -1).plus(idle, -time.Since(began).Seconds()).over(float64(units))
}

// liveness returns what a second costs each node, while nothing happens.
func liveness(t *testing.T, nodes int) cost {
	return newTestbed(t, nodes, nobody).idle.over(float64(nodes))
}

// staying returns the same if members are present, and stay.
func staying(t *testing.T, nodes int) cost {
	return newTestbed(t, nodes, inManyTopics).idle.over(float64(nodes))
}

// changing returns what a member costs that joins and leaves. Each node has one per second.
func changing(t *testing.T, nodes int) cost {
	b := newTestbed(t, nodes, inManyTopics)
	const seconds = 5
	return b.costOf(seconds*nodes, func() {
		for second := range seconds {
			for i, n := range b.nodes {
				n.Join(roomName(i+second), "visitor", memberData)
			}
			time.Sleep(500 * time.Millisecond)
			for i, n := range b.nodes {
				n.Leave(roomName(i+second), "visitor")
			}
			time.Sleep(500 * time.Millisecond)
		}
	})
}

// following returns what it costs that a node follows the members of a topic in which there are none yet.
func following(t *testing.T, nodes int) cost {
	b := newTestbed(t, nodes, nobody)
	const topics = 5
	return b.costOf(topics, func() {
		for i := range topics {
			b.nodes[0].Track(fmt.Sprintf("new/%06d", i))
			time.Sleep(time.Second)
		}
	})
}

// deployed is how many nodes of a cluster are replaced.
func deployed(nodes int) int { return min(nodes, 10) }

// deploying returns what it costs to replace a node.
func deploying(t *testing.T, nodes int) cost {
	b := newTestbed(t, nodes, inRooms)
	return b.costOf(deployed(nodes), func() {
		for i := range deployed(nodes) {
			require.NoError(t, b.nodes[i].Close(context.Background()))
			b.nodes[i] = b.start(i, inRooms)
			time.Sleep(time.Second)
		}
	})
}

// returning returns what it costs that a node was cut off for a minute. Meanwhile, a member has joined on each of nine others.
func returning(t *testing.T, nodes int) cost {
	b := newTestbed(t, nodes, inRooms)
	cutOff := func(is bool) {
		b.meter.Update(b.nodes[0].Name(), func(f *enginetest.Faults) { f.Disconnect, f.FailPublish = is, is })
	}
	cutOff(true)
	for i, n := range b.nodes[1:] {
		if i < 9 {
			n.Join(roomName(i), "visitor", memberData)
		}
	}
	time.Sleep(time.Minute)
	return b.costOf(1, func() {
		cutOff(false)
		b.rest() // the new members and a minute make heartbeats and probes longer
	})
}
