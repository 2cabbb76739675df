//go:build !js

package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/internal/simnet"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// A delayedNetwork connects clients to a server in memory.
type delayedNetwork struct {
	*simnet.Network
	*simnet.Listener
}

// newDelayedNetwork returns a network that delays what is sent by up to twice a time in each direction.
func newDelayedNetwork(delay time.Duration) *delayedNetwork {
	n := simnet.New(1, simnet.Links{MaxDelay: 2 * delay, Window: 64 << 10})
	return &delayedNetwork{n, n.Listen("server")}
}

func (n *delayedNetwork) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return n.Dial(ctx, "client", "server")
}

// cut breaks all connections.
func (n *delayedNetwork) cut() { n.Cut("server") }

// serve starts a server on the network, until the function is called.
func (n *delayedNetwork) serve(r *router.Router) (httpClient *http.Client, closeAll func()) {
	httpClient, closeServer := n.serveHandler(r)
	return httpClient, func() {
		httpClient.CloseIdleConnections()
		_ = r.Shutdown(context.Background())
		closeServer()
	}
}

func (n *delayedNetwork) serveHandler(h http.Handler) (httpClient *http.Client, closeAll func()) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(n) }()
	transport := &http.Transport{DialContext: n.dial}
	return &http.Client{Transport: transport}, func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		time.Sleep(time.Minute) // until what is on its way has arrived
	}
}

type pacingCase struct {
	name               string
	policy             limit.Policy
	announce           bool
	delay              time.Duration // in each direction
	messages           int
	maxRejectedPerWait int64
	minRate            float64 // of the allowed rate
}

func TestPacing_MessagesAreAdmittedInOrder(t *testing.T) {
	t.Parallel()
	hundred := limit.PerSecond(100).Burst(20).Named("messages")
	messages := testscale.Tiers(2000, 2000, 10_000)
	for _, tt := range []pacingCase{
		{"announced", hundred, true, 0, messages, 0, 0.99},
		{"announced, slow network", hundred, true, 25 * time.Millisecond, messages, 0, 0.99},
		{"unknown, fast network", hundred, false, 100 * time.Microsecond, messages, 1, 0.95},
		{"unknown, 4 ms", hundred, false, 2 * time.Millisecond, messages, 1, 0.95},
		{"unknown, slow network", limit.PerSecond(5).Burst(20).Named("messages"), false, 50 * time.Millisecond, 400, 1, 0.95},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, tt.run)
		})
	}
}

func (tt *pacingCase) run(t *testing.T) {
	limiter := memory.NewLimiter(tt.policy)
	limited := &ratelimit.Options{Key: ratelimit.KeyPerConn, Cost: func(in router.IngressContext) int64 {
		if in.Type == "SAY" {
			return 1
		}
		return 0
	}}
	var rejected, inRow, mostInRow atomic.Int64
	opts := &router.Options{Logger: slog.New(slog.DiscardHandler), OnLimitExceeded: func(router.LimitExceeded) {
		rejected.Add(1)
		mostInRow.Store(max(mostInRow.Load(), inRow.Add(1)))
	}}
	if tt.announce {
		opts.AnnounceLimits = ratelimit.Announce(limiter, limited)
	}
	r := router.New(opts)
	r.UseIngress(ratelimit.New(limiter, limited))
	r.UseIngress(func(_ context.Context, in router.IngressContext) error {
		if in.Type == "SAY" {
			inRow.Store(0)
		}
		return nil
	})
	var received []string
	all := make(chan struct{})
	router.On(r, func(_ *router.Context, m say) error {
		if received = append(received, m.Text); len(received) == tt.messages {
			close(all)
		}
		return nil
	})
	network := newDelayedNetwork(tt.delay)
	httpClient, closeAll := network.serve(r)
	defer closeAll()
	var failed atomic.Int64
	c := client.New("ws://example.com/", &client.Options{HTTPClient: httpClient, Pacing: true, OnError: func(_ string, err error) { failed.Add(1); t.Log(err) }})
	defer func() { require.NoError(t, c.Close(context.Background())) }()
	require.NoError(t, c.Connect(context.Background()))
	start := time.Now()
	for i := range tt.messages {
		require.NoError(t, client.Send(context.Background(), c, say{fmt.Sprint(i)}))
	}
	<-all
	elapsed := time.Since(start)
	for i, text := range received {
		require.Equal(t, fmt.Sprint(i), text)
	}
	assert.Zero(t, failed.Load())
	rate := float64(int64(tt.messages)-tt.policy.Capacity) / elapsed.Seconds() / float64(tt.policy.Refill)
	t.Logf("%d messages in %v: %.2f %% of the allowed rate, %d rejected", tt.messages, elapsed, 100*rate, rejected.Load())
	assert.GreaterOrEqual(t, rate, tt.minRate)
	assert.LessOrEqual(t, mostInRow.Load(), tt.maxRejectedPerWait)
}
