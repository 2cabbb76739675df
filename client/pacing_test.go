//go:build !js

package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// A delayedNetwork is a listener whose connections are in memory, and delay what is sent.
type delayedNetwork struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
	delay    func() time.Duration // in each direction

	mu   sync.Mutex
	open []net.Conn
}

func newDelayedNetwork(delay func() time.Duration) *delayedNetwork {
	return &delayedNetwork{accepted: make(chan net.Conn), closed: make(chan struct{}), delay: delay}
}

// Accept returns the server's end of a connection.
func (n *delayedNetwork) Accept() (net.Conn, error) {
	select {
	case conn := <-n.accepted:
		return conn, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (n *delayedNetwork) Close() error { n.once.Do(func() { close(n.closed) }); return nil }

// Addr returns an address that means nothing.
func (n *delayedNetwork) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)} }

func (n *delayedNetwork) dial(context.Context, string, string) (net.Conn, error) {
	outer, inner := net.Pipe()
	remote, server := net.Pipe()
	go n.copy(remote, inner)
	go n.copy(inner, remote)
	n.mu.Lock()
	n.open = append(n.open, inner, remote)
	n.mu.Unlock()
	n.accepted <- server
	return outer, nil
}

// cut breaks all connections.
func (n *delayedNetwork) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.open {
		_ = conn.Close()
	}
	n.open = nil
}

// copy passes bytes on, in order, each after a delay.
func (n *delayedNetwork) copy(to, from net.Conn) {
	type chunk struct {
		bytes []byte
		due   time.Time
	}
	chunks := make(chan chunk, 100_000)
	go func() {
		defer close(chunks)
		for {
			b := make([]byte, 64<<10)
			k, err := from.Read(b)
			if err != nil {
				return
			}
			chunks <- chunk{b[:k], time.Now().Add(n.delay())}
		}
	}()
	for c := range chunks {
		time.Sleep(time.Until(c.due))
		_, _ = to.Write(c.bytes)
	}
	_ = to.Close()
}

// serve starts a server on the network. The functions end when close is called.
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
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(n) }()
	transport := &http.Transport{DialContext: n.dial}
	return &http.Client{Transport: transport}, func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		_ = n.Close()
		<-served
	}
}

type pacingCase struct {
	name               string
	policy             limit.Policy
	announce           bool
	delay              func() time.Duration
	messages           int
	maxRejectedPerWait int64
	minRate            float64 // of the allowed rate
}

func constant(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

func TestPacing_MessagesAreAdmittedInOrder(t *testing.T) {
	t.Parallel()
	hundred := limit.PerSecond(100).Burst(20).Named("messages")
	messages := testscale.Tiers(2000, 2000, 10_000)
	for _, tt := range []pacingCase{
		{"announced", hundred, true, constant(0), messages, 0, 0.99},
		{"announced, slow network", hundred, true, constant(25 * time.Millisecond), messages, 0, 0.99},
		{"unknown, fast network", hundred, false, constant(100 * time.Microsecond), messages, 1, 0.95},
		{"unknown, 4 ms", hundred, false, constant(2 * time.Millisecond), messages, 1, 0.95},
		{"unknown, slow network", limit.PerSecond(5).Burst(20).Named("messages"), false, constant(50 * time.Millisecond), 400, 1, 0.95},
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
