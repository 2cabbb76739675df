package redis

import (
	"context"
	"net"
	"sync"
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

// TestBroker_DeliversWhatStalledConnectionHas stalls the connections of a node for longer than it
// takes until it suspects them, while another node publishes. What the server has sent meanwhile
// arrives in the end, so nothing may be lost or reported.
func TestBroker_DeliversWhatStalledConnectionHas(t *testing.T) {
	t.Parallel()
	type stall struct {
		name  string
		begin func(*redistest.Proxy)
		lasts time.Duration
	}
	quick := []stall{{"in both directions for 5.5 s", (*redistest.Proxy).Stall, 5500 * time.Millisecond}}
	full := []stall{
		{"in both directions for 5 s", (*redistest.Proxy).Stall, 5 * time.Second},
		quick[0],
		{"from the server for 5 s", (*redistest.Proxy).StallReplies, 5 * time.Second},
		{"from the server for 8 s", (*redistest.Proxy).StallReplies, 8 * time.Second},
		{"in both directions for 12 s", (*redistest.Proxy).Stall, 12 * time.Second},
	}
	for _, tt := range testscale.Pick(quick, full) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.StartProxy(t, server.Addr)
			a, b := connectPair(t, server.Client(t), server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr }))
			p := &publisher{node: a}
			publishFor := func(d time.Duration) {
				for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
					p.publish()
				}
			}
			publishFor(time.Second)
			tt.begin(proxy)
			publishFor(tt.lasts)
			proxy.Restore()
			publishFor(time.Second)
			p.checkLosses(t, b)
			publishFor(3 * time.Second) // in which a loss would be reported
			p.checkLosses(t, b)
			b.mu.Lock()
			defer b.mu.Unlock()
			assert.Len(t, b.received, len(p.published))
			assert.Empty(t, b.reports)
			assert.Equal(t, 1, b.subscribed)
			assert.Zero(t, b.left)
		})
	}
}

// TestBroker_ReplacesHalfOpenConnection stalls the connections of a node for ever, and lets it open
// others. What arrives on the new connection, while the node still waits for the old one, must not
// be lost.
func TestBroker_ReplacesHalfOpenConnection(t *testing.T) {
	testscale.FullOnly(t, "TestBroker_DeliversWhatStalledConnectionHas")
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	var direct atomic.Bool // new connections bypass the proxy
	client := server.Client(t, func(o *goredis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !direct.Load() {
				addr = proxy.Addr
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	})
	var mu sync.Mutex
	received := map[int]time.Time{}
	b := &node{}
	b.Node = NewBroker(client).Connect(broker.Callbacks{
		Receive: func(_, _ string, packet []byte) {
			mu.Lock()
			defer mu.Unlock()
			received[number(string(packet))] = time.Now()
			b.mu.Lock()
			defer b.mu.Unlock()
			b.received = append(b.received, string(packet))
		},
		MessagesLost: func(_ string, packets int) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.reports = append(b.reports, report{packets: packets, at: time.Now()})
		},
	})
	t.Cleanup(b.close)
	p := &publisher{node: connect(server.Client(t))}
	t.Cleanup(p.node.close)
	b.Subscribe("news")
	b.eventually(t, "a packet", func() bool { p.publish(); return len(b.received) > 0 })
	proxy.StallReplies()
	direct.Store(true)
	stalled := len(p.published)
	b.eventually(t, "a packet on another connection", func() bool {
		p.publish()
		return number(b.received[len(b.received)-1]) > stalled+10
	})
	p.checkLosses(t, b)
	mu.Lock()
	defer mu.Unlock()
	first := stalled + 11 // what was under way may have arrived before
	for ; received[first].IsZero(); first++ {
		require.Less(t, first, len(p.published))
	}
	t.Logf("%d packets were lost; the next one arrived after %v", first-stalled, received[first].Sub(p.published[first]))
	assert.Greater(t, received[first].Sub(p.published[first]), 350*time.Millisecond, "it was kept while the node waited for the old connection")
	assert.Len(t, b.reports, 1)
}
