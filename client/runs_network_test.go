//go:build !js

package client_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// A network connects clients with a router by pipes, which work in virtual time. It is the listener
// of the router's server.
type network struct {
	accepted chan net.Conn
	closed   chan struct{}
	fail     atomic.Bool // no client can connect

	mu   sync.Mutex
	open []net.Conn
}

func newNetwork() *network {
	return &network{accepted: make(chan net.Conn), closed: make(chan struct{})}
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.accepted:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Addr() net.Addr { return &net.TCPAddr{} }
func (n *network) Close() error   { close(n.closed); return nil }

func (n *network) dial(context.Context, string, string) (net.Conn, error) {
	if n.fail.Load() {
		return nil, errors.New("the network is down")
	}
	outer, inner := net.Pipe()
	select {
	case n.accepted <- inner:
	case <-n.closed:
		return nil, net.ErrClosed
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open = append(n.open, outer)
	return outer, nil
}

// cut ends all connections without a close frame.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.open {
		_ = c.Close()
	}
	n.open = nil
}

// serve serves a router, and returns a function that ends it.
func (n *network) serve(r *router.Router) (closeAll func()) {
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(n) }()
	return func() {
		_ = r.Shutdown(context.Background())
		_ = server.Close()
		<-served
	}
}

// connect returns a client that is closed when the test ends.
func (n *network) connect(t *testing.T, codec client.Codec) *client.Client {
	httpClient := &http.Client{Transport: &http.Transport{DialContext: n.dial}}
	c := client.New("ws://example.com/", &client.Options{HTTPClient: httpClient, Codec: codec, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c
}

func newRouter() *router.Router {
	return router.New(&router.Options{Codecs: []router.Codec{cbor.New(nil)}, Logger: slog.New(slog.DiscardHandler)})
}

// withRuns adds runs of tokens to a router. Clients may do everything except with answer/secret.
func withRuns(r *router.Router, merge func(a, b token) (token, bool)) *run.Runs[token] {
	authorize := func(_ *router.Context, _ run.Action, topic run.Topic) error {
		if topic.Value("chat") == "secret" {
			return errors.Errorf(errors.PermissionDenied, "it is secret")
		}
		return nil
	}
	return run.New(r, "answer/{chat}", &run.Options[token]{Merge: merge, Authorize: authorize, ShutdownGrace: time.Millisecond})
}

// inVirtualTime calls f with a client of a router, and with its runs.
func inVirtualTime(t *testing.T, merge func(a, b token) (token, bool), f func(t *testing.T, n *network, c *client.Client, rs *run.Runs[token])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, n := newRouter(), newNetwork()
		rs := withRuns(r, merge)
		t.Cleanup(n.serve(r))
		f(t, n, n.connect(t, nil), rs)
	})
}
