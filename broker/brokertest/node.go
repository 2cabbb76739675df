package brokertest

import (
	"fmt"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// A node records what its node delivers.
type node struct {
	broker.Node
	recorder
	cluster Cluster

	deliveries []delivery
	subscribed map[string]int          // calls of Subscribed, by topic
	members    map[remoteMember]string // data
	left       []string                // nodes
	calls      int                     // of the handler
	tolerant   bool                    // packets may be lost
	reported   map[string]time.Time    // the last call of MessagesLost, by topic
}

type delivery struct{ topic, from, packet string }

func (c Cluster) connect() *node {
	n := &node{recorder: recorder{maxWait: c.Timeout}, cluster: c, subscribed: map[string]int{}, members: map[remoteMember]string{}, reported: map[string]time.Time{}}
	n.Node = c.Connect(broker.Callbacks{
		Receive: func(topic, from string, packet []byte) {
			n.record(func() { n.deliveries = append(n.deliveries, delivery{topic, from, string(packet)}) })
		},
		Subscribed: func(topic string) { n.record(func() { n.subscribed[topic]++ }) },
		MessagesLost: func(topic string, packets int) {
			n.record(func() {
				n.reported[topic] = time.Now()
				if !n.tolerant {
					n.lost = fmt.Errorf("MessagesLost reported %d packets of %q", packets, topic)
				}
			})
		},
		PresenceChanged: func(topic string, m broker.Member, joined bool) {
			n.record(func() { n.presenceChangedLocked(topic, m, joined) })
		},
		NodeLeft: func(name string) { n.record(func() { n.left = append(n.left, name) }) },
	})
	return n
}

func closeAll(nodes ...*node) {
	for _, n := range nodes {
		n.close()
	}
}

// close closes the node. An error is reported like a loss, since no case lets Close fail.
func (n *node) close() {
	ctx, cancel := n.timeout()
	defer cancel()
	if err := n.Close(ctx); err != nil {
		n.locked(func() { n.lost = fmt.Errorf("closing the node: %w", err) })
	}
}

// publish publishes a packet. An error is reported like a loss.
func (n *node) publish(topic string, packet []byte) {
	if err := n.Publish(topic, packet); err != nil {
		n.locked(func() { n.lost = fmt.Errorf("publishing: %w", err) })
	}
}

func (n *node) record(f func()) {
	n.locked(func() {
		n.calls++
		f()
	})
}

// kill ends a node as a crash does.
func (c Cluster) kill(n *node) {
	if c.Kill == nil {
		n.close()
		return
	}
	c.Kill(n.Node)
}

// subscribe returns once the broker has reported the subscription.
func (n *node) subscribe(topic string) error {
	before := 0
	n.locked(func() { before = n.subscribed[topic] })
	n.Subscribe(topic)
	return n.await("Subscribed of "+strconv.Quote(topic), func() bool { return n.subscribed[topic] > before })
}

// receives checks that exactly these packets are delivered on a topic, in this order.
func (n *node) receives(topic string, want ...string) error {
	if err := n.await(fmt.Sprintf("packet %d on %.40q", len(want), topic), func() bool { return len(n.packetsLocked(topic)) >= len(want) }); err != nil {
		return err
	}
	time.Sleep(n.cluster.QuietPeriod)
	var got []string
	n.locked(func() { got = n.packetsLocked(topic) })
	if len(got) != len(want) {
		return fmt.Errorf("%d packets were delivered on %.40q, want %d", len(got), topic, len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("packet %d on %.40q is %.40q, want %.40q", i, topic, got[i], want[i])
		}
	}
	return nil
}

func (n *node) packetsLocked(topic string) (packets []string) {
	for _, d := range n.deliveries {
		if d.topic == topic {
			packets = append(packets, d.packet)
		}
	}
	return packets
}
