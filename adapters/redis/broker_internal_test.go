package redis

import (
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/internal/redistest"
)

// testCluster connects nodes that each have their own client, as in separate processes.
func testCluster(client func() goredis.UniversalClient) brokertest.Cluster {
	return brokertest.Cluster{
		Connect:     func(handler broker.Handler) broker.Session { return NewBroker(client()).Connect(handler) },
		Kill:        func(s broker.Session) { s.(*session).kill() },
		Timeout:     20 * time.Second,
		QuietPeriod: 20 * time.Millisecond,
	}
}

// kill ends a node without a leave message.
func (s *session) kill() {
	for _, sub := range s.subscribers {
		sub.outbox.close()
	}
	s.cancel()
}

func TestBroker_KeepsContract(t *testing.T) {
	server := redistest.Start(t)
	for _, c := range brokertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			c.Run(t, testCluster(func() goredis.UniversalClient { return server.Client(t) }))
		})
	}
}

func TestBroker_KeepsContractOnCluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	for _, c := range brokertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			c.Run(t, testCluster(func() goredis.UniversalClient { return cluster.Client(t) }))
		})
	}
}

// A node records the calls of its handler.
type node struct {
	broker.Session

	mu         sync.Mutex
	received   []string
	subscribed int
	lost       int // packets, as far as their number is known
	interrupts int // losses of an unknown number
	left       int // nodes
}

func connect(client goredis.UniversalClient) *node {
	n := &node{}
	locked := func(f func()) {
		n.mu.Lock()
		defer n.mu.Unlock()
		f()
	}
	n.Session = NewBroker(client).Connect(broker.Handler{
		Receive:    func(_, _ string, packet []byte) { locked(func() { n.received = append(n.received, string(packet)) }) },
		Subscribed: func(string) { locked(func() { n.subscribed++ }) },
		MessagesLost: func(_ string, packets int) {
			locked(func() {
				n.lost += packets
				if packets == 0 {
					n.interrupts++
				}
			})
		},
		NodeLeft: func(string) { locked(func() { n.left++ }) },
	})
	return n
}

// connectPair returns two nodes; the second subscribes to news.
func connectPair(t *testing.T, publisher, subscriber goredis.UniversalClient) (a, b *node) {
	t.Helper()
	a, b = connect(publisher), connect(subscriber)
	t.Cleanup(a.Close)
	t.Cleanup(b.Close)
	b.Subscribe("news")
	b.eventually(t, "subscribed", func() bool { return b.subscribed == 1 })
	return a, b
}

// eventually waits until happened, which is called with the lock held, returns true.
func (n *node) eventually(t *testing.T, event string, happened func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return happened()
	}, 20*time.Second, 5*time.Millisecond, event)
}

func (n *node) session() *session { return n.Session.(*session) }

func (n *node) outbox() *outbox { return n.session().subscribers[0].outbox }

// awaitLoss waits until the node has recorded a loss of what it published.
func (n *node) awaitLoss(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		o := n.outbox()
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.losses) > 0
	}, 20*time.Second, time.Millisecond)
}

// removeSequences does what the first packet of a new topic does after a minute of silence.
func (n *node) removeSequences() {
	o := n.outbox()
	o.mu.Lock()
	for _, c := range o.numbers.channels {
		c.used = c.used.Add(-2 * forgetAfter)
	}
	o.numbers.sweepAt = time.Time{}
	o.mu.Unlock()
	n.Publish("other", nil)
}
