package redis

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// A publisher publishes numbers and records when.
type publisher struct {
	node      *node
	published []time.Time
}

func (p *publisher) publish() {
	_ = p.node.Publish("news", fmt.Append(nil, len(p.published)))
	p.published = append(p.published, time.Now())
}

// checkLosses waits until each number was delivered or reported as lost after it was published,
// and checks the order of the others.
func (p *publisher) checkLosses(t *testing.T, n *node) {
	t.Helper()
	missing := 0
	n.eventually(t, "every packet is delivered or reported as lost", func() bool {
		missing = 0
		delivered := map[int]bool{}
		for _, packet := range n.received {
			delivered[number(packet)] = true
		}
		for i, at := range p.published {
			if delivered[i] {
				continue
			}
			missing++
			if len(n.reports) == 0 || n.reports[len(n.reports)-1].at.Before(at) {
				return false
			}
		}
		return true
	})
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := 1; i < len(n.received); i++ {
		require.Greater(t, number(n.received[i]), number(n.received[i-1]), "packet %d", i)
	}
	t.Logf("%d of %d packets were lost, in %d reports", missing, len(p.published), len(n.reports))
}

func number(packet string) (n int) {
	_, _ = fmt.Sscan(packet, &n)
	return n
}

// TestBroker_ReportsEveryLoss breaks the network between two nodes, or Redis itself, while one of
// them publishes. Each packet must be delivered once and in order, or be reported as lost after it
// was published, and each outage must be reported once.
func TestBroker_ReportsEveryLoss(t *testing.T) {
	testscale.FullOnly(t, "TestBroker_ReportsLossWhenClientReconnects")
	t.Parallel()
	type network struct {
		server                *redistest.Server
		publisher, subscriber *redistest.Proxy // of the nodes
	}
	for name, tt := range map[string]struct {
		interrupt, restore func(*network)
	}{
		"subscriber disconnected": {func(n *network) { n.subscriber.Cut() }, func(n *network) { n.subscriber.Restore() }},
		"subscriber stalled":      {func(n *network) { n.subscriber.Stall() }, func(n *network) { n.subscriber.Restore() }},
		"publisher disconnected":  {func(n *network) { n.publisher.Cut() }, func(n *network) { n.publisher.Restore() }},
		"publisher stalled":       {func(n *network) { n.publisher.Stall() }, func(n *network) { n.publisher.Restore() }},
		"Redis restarted":         {func(n *network) { n.server.Stop() }, func(n *network) { n.server.Restart() }},
		"Redis paused":            {func(n *network) { n.server.Pause() }, func(n *network) { n.server.Resume() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			n := &network{server, redistest.StartProxy(t, server.Addr), redistest.StartProxy(t, server.Addr)}
			clientOf := func(p *redistest.Proxy) *goredis.Client {
				return server.Client(t, func(o *goredis.Options) { o.Addr = p.Addr })
			}
			a, b := connectPair(t, clientOf(n.publisher), clientOf(n.subscriber))
			p := &publisher{node: a}
			publish := func(count int) {
				for range count {
					p.publish()
					time.Sleep(time.Millisecond) // so that the outage happens meanwhile
				}
			}
			publish(50)
			b.eventually(t, "the first packets", func() bool { return len(b.received) == 50 })
			tt.interrupt(n)
			publish(3000)
			tt.restore(n)
			before := len(p.published)
			// The subscriber may not have detected the outage yet.
			b.eventually(t, "delivery works again", func() bool {
				p.publish()
				return number(b.received[len(b.received)-1]) >= before
			})
			p.checkLosses(t, b)
			time.Sleep(2 * time.Second) // in which a second report could follow
			b.mu.Lock()
			defer b.mu.Unlock()
			if name != "publisher stalled" { // whose batches are given up one after the other
				assert.LessOrEqual(t, len(b.reports), 2)
			}
			if len(b.reports) == 0 {
				return // a stalled publisher may lose nothing
			}
			last := b.reports[len(b.reports)-1]
			assert.GreaterOrEqual(t, number(b.received[last.received-1]), before, "a loss is reported when the subscription works again")
		})
	}
}

// TestBroker_ReportsLossOfLastPackets publishes nothing after the loss that would reveal it.
func TestBroker_ReportsLossOfLastPackets(t *testing.T) {
	testscale.FullOnly(t, "TestBroker_ReportsLossWhenClientReconnects")
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	a, b := connectPair(t, server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr }), server.Client(t))
	p := &publisher{node: a}
	p.publish()
	b.eventually(t, "the first", func() bool { return len(b.received) == 1 })
	proxy.Cut()
	for range 3 {
		p.publish()
	}
	time.Sleep(5 * time.Second) // in which they are lost
	proxy.Restore()
	p.checkLosses(t, b)
}

// TestBroker_ReportsLossWhenClientReconnects makes go-redis replace the connection while the node
// handles a packet and therefore does not receive.
func TestBroker_ReportsLossWhenClientReconnects(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	a := connect(server.Client(t))
	defer a.close()
	var losses, subscribed atomic.Int64
	entered, release := make(chan struct{}), make(chan struct{})
	b := &node{}
	b.Node = NewBroker(server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr })).Connect(broker.Callbacks{
		Receive: func(_, _ string, packet []byte) {
			if string(packet) == "block" {
				close(entered)
				<-release
			}
		},
		Subscribed:   func(string) { subscribed.Add(1) },
		MessagesLost: func(string, int) { losses.Add(1) },
		NodeLeft:     func(string) {},
	})
	defer b.close()
	b.Subscribe("news")
	require.Eventually(t, func() bool { return subscribed.Load() == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, a.Publish("news", []byte("block")))
	<-entered
	proxy.Cut()
	require.NoError(t, a.Publish("news", []byte("lost")))
	time.Sleep(300 * time.Millisecond) // the loss must precede the new connection
	proxy.Restore()
	for n := range 10 { // writes to the broken connections
		b.Subscribe(fmt.Sprint("other ", n))
		time.Sleep(50 * time.Millisecond)
	}
	close(release)
	require.Eventually(t, func() bool { return losses.Load() > 0 }, time.Minute, time.Millisecond)
}
