package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/cluster/enginetest"
)

// A node records the calls of its handlers.
type node struct {
	*cluster.Node
	network *enginetest.Network

	mu         sync.Mutex
	received   []string // topic, then the packet
	subscribed []string // topics
	reports    []report
	left       []string
	presence   []string // calls of PresenceChanged: topic, ID and data, "left" if so
}

// A report is a call of MessagesLost.
type report struct {
	topic   string
	packets int
}

func connect(t *testing.T, network *enginetest.Network) *node {
	t.Helper()
	n := &node{network: network}
	n.Node = cluster.New(network).Connect(broker.Callbacks{
		Receive: func(topic, _ string, packet []byte) {
			n.locked(func() { n.received = append(n.received, topic+" "+string(packet)) })
		},
		Subscribed: func(topic string) { n.locked(func() { n.subscribed = append(n.subscribed, topic) }) },
		MessagesLost: func(topic string, packets int) {
			n.locked(func() { n.reports = append(n.reports, report{topic, packets}) })
		},
		NodeLeft: func(name string) { n.locked(func() { n.left = append(n.left, name) }) },
		PresenceChanged: func(topic string, m broker.Member, joined bool) {
			event := fmt.Sprint(topic, " ", m.ID, " ", m.Data)
			if !joined {
				event += " left"
			}
			n.locked(func() { n.presence = append(n.presence, event) })
		},
	}).(*cluster.Node)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = n.Close(ctx)
		time.Sleep(3 * time.Second) // for what is in transit
	})
	return n
}

func (n *node) locked(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// update changes the faults of the node.
func (n *node) update(change func(*enginetest.Faults)) { n.network.Update(n.Name(), change) }

// lost returns the reports, without their times.
func (n *node) lost() (all []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.reports {
		all = append(all, fmt.Sprint(r.topic, " ", r.packets))
	}
	return all
}

func (n *node) packets() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.received)
}

// subscriptions returns the topics for which Subscribed was called.
func (n *node) subscriptions() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.subscribed)
}

// changes returns the calls of PresenceChanged.
func (n *node) changes() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.presence)
}

func (n *node) failures() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.left)
}

// run runs a test in a bubble with a network.
func run(t *testing.T, f func(t *testing.T, network *enginetest.Network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, enginetest.New()) })
}

// connectPair returns two nodes; the second subscribes to news.
func connectPair(t *testing.T, network *enginetest.Network) (a, b *node) {
	t.Helper()
	a, b = connect(t, network), connect(t, network)
	b.Subscribe("news")
	time.Sleep(3 * time.Second) // heartbeats were exchanged
	return a, b
}

// publish publishes packets on news.
func (n *node) publish(t *testing.T, packets ...string) {
	t.Helper()
	for _, packet := range packets {
		if err := n.Publish("news", []byte(packet)); err != nil {
			t.Error(err)
		}
	}
	synctest.Wait()
}
