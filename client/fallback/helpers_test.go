//go:build !js

package fallback_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/client/fallback"
	"github.com/penstock-go/penstock/internal/simnet"
	"github.com/penstock-go/penstock/router"
)

type add struct {
	A int `json:"a"`
	B int `json:"b"`
}

func (add) MessageType() string { return "ADD" }

type sum struct {
	Sum       int    `json:"sum"`
	Transport string `json:"transport"`
}

func (sum) MessageType() string { return "SUM" }

type say struct {
	N   int    `json:"n"`
	Pad string `json:"pad,omitempty"`
}

func (say) MessageType() string { return "SAY" }

// A roundTripFunc is an http.RoundTripper.
type roundTripFunc func(req *http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// exchangeOf returns websocket, probe, check, open, down or up.
func exchangeOf(req *http.Request) string {
	switch {
	case req.Header.Get("Upgrade") != "" && strings.HasSuffix(req.URL.Path, "/http"):
		return "probe"
	case req.Header.Get("Upgrade") != "":
		return "websocket"
	case req.Method == http.MethodGet:
		return "check"
	}
	return req.URL.RawQuery
}

// response returns a response without a body, of the fallback's server if ours is set.
func response(status int, ours bool) *http.Response {
	resp := &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: http.Header{}, Body: http.NoBody}
	if ours {
		resp.Header.Set("Penstock-Fallback", "1")
	}
	return resp
}

// A world is a server, and a client behind a proxy that blocks WebSocket.
type world struct {
	t       *testing.T
	router  *router.Router
	http    *http.Transport
	unblock atomic.Bool // the proxy does not block WebSocket
	stops   []func()

	// intercept stands between the client and the server if it is not nil.
	intercept func(req *http.Request, next http.RoundTripper) (*http.Response, error)

	mu         sync.Mutex
	requests   []string // exchanges
	transports []string
}

// newWorld starts a server. It must be called in a bubble, which waits until the server has ended.
func newWorld(t *testing.T, opts *router.Options) *world {
	if opts == nil {
		opts = &router.Options{}
	}
	opts.Logger = slog.New(slog.DiscardHandler)
	w := &world{t: t, router: router.New(opts)}
	router.RPC(w.router, func(ctx *router.Context, m add) (sum, error) {
		return sum{m.A + m.B, string(ctx.Conn().Transport())}, nil
	})
	return w
}

func (w *world) start() {
	network := simnet.New(1, simnet.Links{Window: 64 << 10})
	w.http = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return network.Dial(ctx, "client", "server")
	}}
	mux := http.NewServeMux()
	mux.Handle("/ws", w.router)
	mux.Handle("/ws/http", w.router.HTTPFallback(nil))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	listener := network.Listen("server")
	go func() { _ = server.Serve(listener) }()
	w.stops = append(w.stops, func() {
		w.http.CloseIdleConnections()
		_ = w.router.Shutdown(context.Background())
		_ = server.Close()
		time.Sleep(time.Minute) // until what is on its way has ended
	})
}

func (w *world) stop() {
	for _, stop := range slices.Backward(w.stops) {
		stop()
	}
}

// RoundTrip is the proxy.
func (w *world) RoundTrip(req *http.Request) (*http.Response, error) {
	exchange := exchangeOf(req)
	w.mu.Lock()
	w.requests = append(w.requests, exchange)
	w.mu.Unlock()
	if (exchange == "websocket" || exchange == "probe") && !w.unblock.Load() {
		return response(http.StatusForbidden, false), nil
	}
	if w.intercept != nil {
		return w.intercept(req, w.http)
	}
	return w.http.RoundTrip(req)
}

// reports returns what OnTransport was called with.
func (w *world) reports() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.transports)
}

// count returns the number of requests of an exchange.
func (w *world) count(exchange string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.requests {
		if r == exchange {
			n++
		}
	}
	return n
}

// connect returns a client that is closed when the world stops.
func (w *world) connect(opts *client.Options) *client.Client {
	if opts == nil {
		opts = &client.Options{}
	}
	opts.Logger = slog.New(slog.DiscardHandler)
	opts.HTTPClient = &http.Client{Transport: fallback.New("http://example.com/ws/http", &fallback.Options{
		Base: w,
		OnTransport: func(transport fallback.Transport, cause error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			text := string(transport)
			if cause != nil {
				text += ": " + cause.Error()
			}
			w.transports = append(w.transports, text)
		},
	})}
	c := client.New("ws://example.com/ws", opts)
	w.stops = append(w.stops, func() { require.NoError(w.t, c.Close(context.Background())) })
	return c
}
