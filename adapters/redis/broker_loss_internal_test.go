package redis

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redistest"
)

// TestBroker_CountsEveryLoss breaks the network between two nodes, or Redis itself, while one of
// them publishes. Each packet must be delivered once and in order, or be counted as lost.
func TestBroker_CountsEveryLoss(t *testing.T) {
	type network struct {
		server                *redistest.Server
		publisher, subscriber *redistest.Proxy // of the nodes
	}
	for name, tt := range map[string]struct {
		interrupt, restore func(*network)
		interrupted        bool // the subscriber must report it
	}{
		"subscriber disconnected": {func(n *network) { n.subscriber.Cut() }, func(n *network) { n.subscriber.Restore() }, true},
		"subscriber stalled":      {func(n *network) { n.subscriber.Stall() }, func(n *network) { n.subscriber.Restore() }, true},
		"publisher disconnected":  {func(n *network) { n.publisher.Cut() }, func(n *network) { n.publisher.Restore() }, false},
		"publisher stalled":       {func(n *network) { n.publisher.Stall() }, func(n *network) { n.publisher.Restore() }, false},
		"Redis restarted":         {func(n *network) { n.server.Stop() }, func(n *network) { n.server.Restart() }, true},
		"Redis paused":            {func(n *network) { n.server.Pause() }, func(n *network) { n.server.Resume() }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			n := &network{server, redistest.StartProxy(t, server.Addr), redistest.StartProxy(t, server.Addr)}
			clientOf := func(p *redistest.Proxy) *goredis.Client {
				return server.Client(t, func(o *goredis.Options) { o.Addr = p.Addr })
			}
			a, b := connectPair(t, clientOf(n.publisher), clientOf(n.subscriber))
			published := 0
			publish := func(count int) {
				for range count {
					a.Publish("news", fmt.Appendf(nil, "%d", published))
					published++
					time.Sleep(time.Millisecond) // so that the outage happens meanwhile
				}
			}
			publish(50)
			b.eventually(t, "the first packets", func() bool { return len(b.received) == 50 })
			tt.interrupt(n)
			publish(3000)
			tt.restore(n)
			before := published
			// The subscriber may not have detected the outage yet.
			b.eventually(t, "delivery works again", func() bool {
				a.Publish("news", fmt.Appendf(nil, "%d", published))
				published++
				return len(b.received) > 50 && atLeast(b.received[len(b.received)-1], before)
			})
			b.eventually(t, "every packet is delivered or counted", func() bool { return len(b.received)+b.lost == published })
			b.mu.Lock()
			defer b.mu.Unlock()
			for i := 1; i < len(b.received); i++ {
				require.True(t, atLeast(b.received[i], 1+number(b.received[i-1])), "%q follows %q", b.received[i], b.received[i-1])
			}
			if tt.interrupted {
				assert.Positive(t, b.interrupts)
			}
			t.Logf("%d of %d packets were lost", b.lost, published)
		})
	}
}

func number(packet string) (n int) {
	_, _ = fmt.Sscan(packet, &n)
	return n
}

func atLeast(packet string, n int) bool { return number(packet) >= n }

// TestBroker_ReportsLossOfLastPackets publishes nothing after the loss that would reveal it.
func TestBroker_ReportsLossOfLastPackets(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	a, b := connectPair(t, server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr }), server.Client(t))
	a.Publish("news", []byte("first"))
	b.eventually(t, "the first", func() bool { return len(b.received) == 1 })
	proxy.Cut()
	for range 3 {
		a.Publish("news", []byte("lost"))
	}
	a.awaitLoss(t)
	proxy.Restore()
	b.eventually(t, "the loss", func() bool { return len(b.received)+b.lost >= 4 })
}

func TestOutbox_IsBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := connectPair(t, server.Client(t), server.Client(t))
	a.Publish("news", []byte("first"))
	b.eventually(t, "the first", func() bool { return len(b.received) == 1 })
	server.Pause()
	const packets = 100
	for range packets {
		a.Publish("news", make([]byte, 1<<20))
	}
	o := a.outbox()
	o.mu.Lock()
	assert.LessOrEqual(t, o.bytes, maxWaitingBytes)
	o.mu.Unlock()
	server.Resume()
	b.eventually(t, "every packet is delivered or counted", func() bool { return len(b.received)+b.lost == 1+packets })
	assert.Positive(t, b.lost)
}

// TestBroker_ReportsLossOfFirstNumber loses the first packet of a new sequence.
func TestBroker_ReportsLossOfFirstNumber(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	a, b := connectPair(t, server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr }), server.Client(t))
	a.Publish("news", []byte("0"))
	b.eventually(t, "the first", func() bool { return len(b.received) == 1 })
	a.removeSequences()
	proxy.Cut()
	a.Publish("news", []byte("1")) // is lost
	time.Sleep(3 * publishTimeout) // after which it is not retried
	proxy.Restore()
	published := 2
	b.eventually(t, "delivery works again", func() bool {
		a.Publish("news", fmt.Append(nil, published))
		published++
		return len(b.received) > 1
	})
	b.eventually(t, "every packet is delivered or counted", func() bool { return len(b.received)+b.lost == published })
}

// A failingHook makes all pipelines of a client fail while on is set.
type failingHook struct{ on atomic.Bool }

func (*failingHook) DialHook(next goredis.DialHook) goredis.DialHook          { return next }
func (*failingHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (f *failingHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if !f.on.Load() {
			return next(ctx, cmds)
		}
		err := errors.New("max number of clients reached")
		for _, c := range cmds {
			c.SetErr(err)
		}
		return err
	}
}

// TestBroker_ReportsLossOfRemovedSequence removes the sequence before the loss is announced.
func TestBroker_ReportsLossOfRemovedSequence(t *testing.T) {
	server := redistest.Start(t)
	client, hook := server.Client(t), &failingHook{}
	client.AddHook(hook)
	a, b := connectPair(t, client, server.Client(t))
	a.Publish("news", []byte("first"))
	b.eventually(t, "first", func() bool { return len(b.received) == 1 })
	hook.on.Store(true)
	a.Publish("news", []byte("lost"))
	a.awaitLoss(t)
	a.removeSequences()
	hook.on.Store(false)
	b.eventually(t, "the loss is reported", func() bool { return b.lost > 0 })
	a.Publish("news", []byte("second"))
	b.eventually(t, "second", func() bool { return slices.Contains(b.received, "second") })
}

// TestBroker_ReportsLossBeforeFirstDelivery loses the first packet that a node publishes on a
// topic, before the other node has received any from it.
func TestBroker_ReportsLossBeforeFirstDelivery(t *testing.T) {
	server := redistest.Start(t)
	client, hook := server.Client(t), &failingHook{}
	client.AddHook(hook)
	a, b := connectPair(t, client, server.Client(t))
	hook.on.Store(true)
	a.Publish("news", []byte("lost"))
	a.awaitLoss(t)
	hook.on.Store(false)
	a.Publish("news", []byte("delivered")) // before the loss is announced
	b.eventually(t, "a packet", func() bool { return len(b.received) == 1 })
	b.eventually(t, "the loss is reported", func() bool { return b.lost+b.interrupts > 0 })
}

// TestBroker_ReportsLossWhenClientReconnects makes go-redis replace the connection while the node
// handles a packet and therefore does not receive.
func TestBroker_ReportsLossWhenClientReconnects(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	a := connect(server.Client(t))
	defer a.Close()
	var losses, subscribed atomic.Int64
	entered, release := make(chan struct{}), make(chan struct{})
	b := NewBroker(server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr })).Connect(broker.Handler{
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
	defer b.Close()
	b.Subscribe("news")
	require.Eventually(t, func() bool { return subscribed.Load() == 1 }, 20*time.Second, time.Millisecond)
	a.Publish("news", []byte("block"))
	<-entered
	proxy.Cut()
	a.Publish("news", []byte("lost"))
	time.Sleep(300 * time.Millisecond) // the loss must precede the new connection
	proxy.Restore()
	for n := range 5 { // writes to the broken connection
		b.Subscribe(fmt.Sprint("other ", n))
		time.Sleep(50 * time.Millisecond)
	}
	close(release)
	require.Eventually(t, func() bool { return losses.Load() > 0 }, 20*time.Second, time.Millisecond)
}
