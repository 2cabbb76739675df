package interop_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	goclient "github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/client/fallback"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// fallbackClients are clients that may fall back to HTTP.
type fallbackClients struct {
	cluster *cluster
	base    http.RoundTripper
	clients []*goclient.Client
	calling sync.WaitGroup

	mu       sync.Mutex
	fellBack []string // why
}

// connect connects further clients, and waits until they are connected.
func (f *fallbackClients) connect(number int) {
	t, proxy := f.cluster.t, f.cluster.proxy
	added := make([]*goclient.Client, number)
	for i := range added {
		transport := fallback.New("https://"+proxy.host()+"/ws/http", &fallback.Options{Base: f.base, OnTransport: f.onTransport})
		added[i] = goclient.New("wss://"+proxy.host()+"/ws", &goclient.Options{
			HTTPClient: &http.Client{Transport: transport}, Resume: true, Logger: slog.New(slog.DiscardHandler),
		})
		t.Cleanup(func() { _ = added[i].Close(context.Background()) })
	}
	f.clients = append(f.clients, added...)
	f.waitConnected(added)
}

// connectTo connects clients until the proxy has sent one to a node.
func (f *fallbackClients) connectTo(n *node) {
	for n.router.Stats().Conns == 0 {
		f.connect(1)
	}
}

func (f *fallbackClients) onTransport(by fallback.Transport, cause error) {
	if by == fallback.WebSocket {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fellBack = append(f.fellBack, string(by)+": "+cause.Error())
}

// waitConnected waits until each client has got an answer.
func (f *fallbackClients) waitConnected(clients []*goclient.Client) {
	t := f.cluster.t
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var waiting sync.WaitGroup
	for _, c := range clients {
		waiting.Go(func() {
			for ctx.Err() == nil {
				if _, err := goclient.Call[Worked](ctx, c, Work{N: f.cluster.lastCall.Add(1)}); err == nil {
					return
				}
			}
			assert.Fail(t, "a client is not connected")
		})
	}
	waiting.Wait()
}

// call lets each client call about once per second until ctx is done.
func (f *fallbackClients) call(ctx context.Context) {
	for _, c := range f.clients {
		f.calling.Go(func() {
			for ctx.Err() == nil {
				_, _ = goclient.Call[Worked](ctx, c, Work{N: f.cluster.lastCall.Add(1)})
				select {
				case <-time.After(rand.N(2 * time.Second)):
				case <-ctx.Done():
				}
			}
		})
	}
}

func startFallbackClients(t *testing.T, b func() broker.Broker) *fallbackClients {
	t.Helper()
	c := &cluster{t: t, handled: map[int64]int{}, broker: b, configure: changeHandshake}
	c.start(proxyPrograms[1])
	t.Cleanup(func() {
		for _, n := range c.nodes {
			n.kill()
		}
		for _, n := range c.nodes {
			n.ending.Wait()
		}
	})
	base := c.proxy.transport("127.0.0.1")
	t.Cleanup(base.CloseIdleConnections)
	return &fallbackClients{cluster: c, base: base}
}

// kill ends all connections of a node, without a word to its clients, and accepts no other.
func (n *node) kill() {
	_ = n.server.Close()
	n.conns.Range(func(conn, _ any) bool {
		_ = conn.(net.Conn).Close()
		return true
	})
	n.conns.Clear()
	killed := n.router
	n.ending.Go(func() { _ = killed.Shutdown(context.Background()) })
}

// TestRollingRestart_NoClientFallsBack restarts nodes behind HAProxy, kills one, and has all of them down at the
// same time. None of that is a reason to fall back to HTTP.
func TestRollingRestart_NoClientFallsBack(t *testing.T) {
	testscale.FullOnly(t, "TestRollingRestart")
	t.Parallel()
	number := 200
	if testscale.Soak() > 0 {
		number = 1000
	}
	b := memory.NewBroker()
	f := startFallbackClients(t, func() broker.Broker { return b })
	for range number / 50 {
		f.connect(50)
	}
	time.Sleep(5 * time.Second) // WebSocket works for a client whose connection has lasted that long
	ctx, cancel := context.WithCancel(t.Context())
	f.call(ctx)
	nodes := f.cluster.nodes
	for _, n := range nodes {
		n.stop()
		n.start()
		f.connectTo(n)
	}
	nodes[0].kill()
	nodes[0].start()
	f.connectTo(nodes[0])
	var killing sync.WaitGroup
	for _, n := range nodes {
		killing.Go(n.kill)
	}
	killing.Wait()
	time.Sleep(3 * time.Second) // several attempts of each client
	for _, n := range nodes {
		n.start()
	}
	cancel()
	f.calling.Wait()
	f.waitConnected(f.clients)
	assert.Empty(t, f.fellBack)
}

// TestRedisFailure_NoClientFallsBack pauses Redis while clients are connected, and while others connect.
func TestRedisFailure_NoClientFallsBack(t *testing.T) {
	testscale.FullOnly(t, "TestRollingRestart")
	t.Parallel()
	server := redistest.Start(t)
	f := startFallbackClients(t, func() broker.Broker { return redis.NewBroker(server.Client(t)) })
	f.connect(50)
	server.Pause()
	paused := time.Now()
	f.connect(50)
	time.Sleep(8*time.Second - time.Since(paused)) // longer than an attempt may be silent
	server.Resume()
	f.waitConnected(f.clients)
	require.Empty(t, f.fellBack)
}
