package redis

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// TestBroker_DeliversWhatStalledConnectionHas stalls the connections of a node for longer than it
// takes until it suspects them, while another node publishes. What the server has sent meanwhile
// arrives in the end, so nothing may be lost or reported.
func TestBroker_DeliversWhatStalledConnectionHas(t *testing.T) {
	testscale.FullOnly(t, "TestBroker_ReportsLossWhenClientReconnects")
	t.Parallel()
	for _, tt := range []struct {
		name  string
		begin func(*redistest.Proxy)
		lasts time.Duration
	}{
		{"in both directions for 5 s", (*redistest.Proxy).Stall, 5 * time.Second},
		{"in both directions for 5.5 s", (*redistest.Proxy).Stall, 5500 * time.Millisecond},
		{"from the server for 5 s", (*redistest.Proxy).StallReplies, 5 * time.Second},
		{"from the server for 8 s", (*redistest.Proxy).StallReplies, 8 * time.Second},
		{"in both directions for 12 s", (*redistest.Proxy).Stall, 12 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.StartProxy(t, server.Addr)
			a, b := connectPair(t, server.Client(t), server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr }), "news")
			p := &publisher{node: a, topic: "news"}
			p.publishFor(time.Second)
			tt.begin(proxy)
			p.publishFor(tt.lasts)
			proxy.Restore()
			p.publishFor(time.Second)
			p.checkLosses(t, b)
			p.publishFor(3 * time.Second) // in which a loss would be reported
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
	testscale.FullOnly(t, "TestBroker_ReportsLossWhenClientReconnects")
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
	b := connect(client)
	t.Cleanup(b.close)
	p := &publisher{node: connect(server.Client(t)), topic: "news"}
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
	b.mu.Lock()
	defer b.mu.Unlock()
	received := map[int]time.Time{}
	for i, packet := range b.received {
		received[number(packet)] = b.times[i]
	}
	first := stalled + 11 // what was under way may have arrived before
	for ; received[first].IsZero(); first++ {
		require.Less(t, first, len(p.published))
	}
	t.Logf("%d packets were lost; the next one arrived after %v", first-stalled, received[first].Sub(p.published[first]))
	assert.Greater(t, received[first].Sub(p.published[first]), 350*time.Millisecond, "it was kept while the node waited for the old connection")
	assert.Len(t, b.reports, 1)
}
