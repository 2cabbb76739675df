package redis

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
)

// A publisher publishes numbers and records when.
type publisher struct {
	node      *node
	topic     string
	published []time.Time
}

func (p *publisher) publish() {
	_ = p.node.Publish(p.topic, fmt.Append(nil, len(p.published)))
	p.published = append(p.published, time.Now())
}

func (p *publisher) publishFor(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		p.publish()
	}
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
