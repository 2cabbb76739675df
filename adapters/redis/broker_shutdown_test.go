package redis_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/router"
)

// TestShutdown_SendsPublications shuts a node down immediately after it has published.
func TestShutdown_SendsPublications(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			server := redistest.Start(t)
			proxy := redistest.StartProxy(t, server.Addr)
			proxy.Delay(delay)
			n := newReceiver(t, server.Client(t))
			r := router.New(&router.Options{Broker: redis.NewBroker(server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr }))})
			const messages = 1000
			for range messages {
				require.NoError(t, r.Publish("news", News{Text: "hello"}))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, r.Shutdown(ctx))
			// The leave message may overtake packets, which arrive on another connection.
			assert.Eventually(t, func() bool { return n.left.Load() == 1 && n.received.Load() == messages }, time.Minute, time.Millisecond,
				"%d packets", &n.received)
			assert.Zero(t, n.lost.Load())
		})
	}
}

// TestShutdown_ReportsUnsentPublications shuts a node down that cannot reach Redis.
func TestShutdown_ReportsUnsentPublications(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	n := newReceiver(t, server.Client(t))
	r := router.New(&router.Options{Broker: redis.NewBroker(server.Client(t, func(o *goredis.Options) { o.Addr = proxy.Addr }))})
	require.NoError(t, r.Publish("news", News{}))
	require.Eventually(t, func() bool { return n.received.Load() == 1 }, time.Minute, time.Millisecond)
	proxy.Stall()
	const messages = 1000
	for range messages {
		require.NoError(t, r.Publish("news", News{}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	err := r.Shutdown(ctx)
	var unsent int
	require.Regexp(t, `broker: \d+ packets for other nodes were not sent`, err)
	_, text, _ := strings.Cut(err.Error(), "broker: ")
	_, _ = fmt.Sscan(text, &unsent)
	assert.GreaterOrEqual(t, unsent, messages)
	assert.Less(t, unsent, messages+100, "the publications, and heartbeats")
	assert.Less(t, time.Since(start), 20*time.Second)
}

// A receiver is a node that counts.
type receiver struct{ received, lost, left atomic.Int64 }

func newReceiver(t *testing.T, client goredis.UniversalClient) *receiver {
	t.Helper()
	n, subscribed := &receiver{}, make(chan struct{}, 100)
	s := redis.NewBroker(client).Connect(broker.Callbacks{
		Receive:      func(string, string, []byte) { n.received.Add(1) },
		Subscribed:   func(string) { subscribed <- struct{}{} },
		MessagesLost: func(string, int) { n.lost.Add(1) },
		NodeLeft:     func(string) { n.left.Add(1) },

		PresenceChanged: func(string, broker.Member, bool) {},
	})
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	s.Subscribe("news")
	<-subscribed
	return n
}
