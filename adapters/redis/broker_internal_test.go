package redis

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// testCluster connects nodes that each have their own client, as in separate processes.
func testCluster(client func() goredis.UniversalClient) brokertest.Cluster {
	return brokertest.Cluster{
		Connect:     func(handler broker.Callbacks) broker.Node { return NewBroker(client()).Connect(handler) },
		Kill:        func(s broker.Node) { s.(*cluster.Node).Kill() },
		Timeout:     20 * time.Second,
		QuietPeriod: 20 * time.Millisecond,
	}
}

// selectCases leaves out those cases in the quick tier that wait until a fault is noticed or the
// presence of a failed node expires, or that make thousands of calls: each takes seconds.
func selectCases[C any](cases []C, name func(C) string) []C {
	slow := []string{
		"loss is reported", "nodes", "presence converges", "presence of a node that ends", "crash", "outcome is true", "value outcome is true",
		"value expires", "metadata outlives publications", "fence outlives publications", "retention by age", "fenced outcome is true",
		"batch in faults", "leases are bounded", "settled leases leave room", "grants in an interval", "decisions are exact", "reservations are exact",
	}
	return testscale.Pick(slices.DeleteFunc(slices.Clone(cases), func(c C) bool { return slices.Contains(slow, name(c)) }), cases)
}

// TestBroker_KeepsContract gives each case a server, because the cases use the same topics.
func TestBroker_KeepsContract(t *testing.T) {
	t.Parallel()
	for _, c := range selectCases(brokertest.Cases(), func(c brokertest.Case) string { return c.Name }) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			f := &faultyCluster{t: t, server: redistest.Start(t), proxies: map[broker.Node]*redistest.Proxy{}}
			cluster := f.cluster()
			cluster.Faults = append(cluster.Faults, brokertest.Fault{Name: "restarted server", Duration: 2 * time.Second, Begin: func(broker.Node) func() {
				f.server.Stop()
				return f.server.Restart
			}}, brokertest.Fault{Name: "paused server", Duration: 5 * time.Second, Begin: func(broker.Node) func() {
				f.server.Pause()
				return f.server.Resume
			}})
			c.Run(t, cluster)
		})
	}
}

// A faultyCluster has a proxy between each node and the server.
type faultyCluster struct {
	t      *testing.T
	server *redistest.Server

	mu      sync.Mutex
	proxies map[broker.Node]*redistest.Proxy
}

func (f *faultyCluster) connect(handler broker.Callbacks) broker.Node {
	return f.connectWith(func(client goredis.UniversalClient) broker.Node { return NewBroker(client).Connect(handler) })
}

func (f *faultyCluster) connectWith(connect func(goredis.UniversalClient) broker.Node, edit ...func(*goredis.Options)) broker.Node {
	proxy := redistest.StartProxy(f.t, f.server.Addr)
	edit = append(edit, func(o *goredis.Options) { o.Addr = proxy.Addr })
	s := connect(f.server.Client(f.t, edit...))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.proxies[s] = proxy
	return s
}

func (f *faultyCluster) proxy(s broker.Node) *redistest.Proxy {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.proxies[s]
}

func (f *faultyCluster) cluster() brokertest.Cluster {
	c := testCluster(nil)
	c.Connect, c.QuietPeriod = f.connect, 100*time.Millisecond
	c.Faults = []brokertest.Fault{
		{Name: "cut connections", Duration: 2 * time.Second, Begin: func(s broker.Node) func() {
			f.proxy(s).Cut()
			return f.proxy(s).Restore
		}},
		{Name: "stalled connections", Duration: 5 * time.Second, Begin: func(s broker.Node) func() {
			f.proxy(s).Stall()
			return f.proxy(s).Restore
		}},
		{Name: "killed connections", Duration: time.Second, Begin: func(broker.Node) func() {
			admin := f.server.Client(f.t)
			_ = admin.ClientKillByFilter(f.t.Context(), "TYPE", "pubsub").Err()
			return func() {}
		}},
	}
	return c
}

func TestBroker_KeepsContractOnCluster(t *testing.T) {
	testscale.FullOnly(t, "TestBroker_KeepsContract")
	t.Parallel()
	servers := redistest.StartCluster(t)
	for _, c := range testscale.SoakSample(brokertest.Cases(), 12) {
		t.Run(c.Name, func(t *testing.T) {
			c.Run(t, testCluster(func() goredis.UniversalClient { return servers.Client(t) }))
		})
	}
}

// A node records the calls of its handler.
type node struct {
	broker.Node

	mu         sync.Mutex
	received   []string
	times      []time.Time // of received
	subscribed int
	reports    []report // of lost messages
	left       int      // nodes
}

// A report is a call of MessagesLost.
type report struct {
	packets  int
	received int // before
	at       time.Time
}

func connect(client goredis.UniversalClient) *node {
	n := &node{}
	locked := func(f func()) {
		n.mu.Lock()
		defer n.mu.Unlock()
		f()
	}
	n.Node = NewBroker(client).Connect(broker.Callbacks{
		Receive: func(_, _ string, packet []byte) {
			locked(func() { n.received, n.times = append(n.received, string(packet)), append(n.times, time.Now()) })
		},
		Subscribed: func(string) { locked(func() { n.subscribed++ }) },
		MessagesLost: func(_ string, packets int) {
			locked(func() { n.reports = append(n.reports, report{packets, len(n.received), time.Now()}) })
		},
		NodeLeft: func(string) { locked(func() { n.left++ }) },
	})
	return n
}

// connectPair returns two nodes; the second subscribes to the topic.
func connectPair(t *testing.T, publisher, subscriber goredis.UniversalClient, topic string) (a, b *node) {
	t.Helper()
	a, b = connect(publisher), connect(subscriber)
	t.Cleanup(a.close)
	t.Cleanup(b.close)
	b.Subscribe(topic)
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
	}, time.Minute, 5*time.Millisecond, event)
}

// close closes the session without sending what waits.
func (n *node) close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.Close(ctx)
}
