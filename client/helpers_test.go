//go:build !js

package client_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

type say struct {
	Text string `json:"text"`
}

func (say) MessageType() string { return "SAY" }

type said struct {
	Text string `json:"text"`
}

func (said) MessageType() string { return "SAID" }

type add struct {
	A int `json:"a"`
	B int `json:"b"`
}

func (add) MessageType() string { return "ADD" }

type sum struct {
	Sum int `json:"sum"`
}

func (sum) MessageType() string { return "SUM" }

type count struct {
	To int `json:"to"`
}

func (count) MessageType() string { return "COUNT" }

type row struct {
	N int `json:"n"`
}

// A testServer is a router behind a listener whose connections the test can cut.
type testServer struct {
	*router.Router

	t    *testing.T
	web  *httptest.Server
	mu   sync.Mutex
	open map[net.Conn]func() // that break them
}

func startServer(t *testing.T, opts *router.Options) *testServer {
	t.Helper()
	if opts == nil {
		opts = &router.Options{}
	}
	opts.Logger = slog.New(slog.DiscardHandler)
	s := &testServer{Router: router.New(opts), t: t, open: map[net.Conn]func(){}}
	s.web = httptest.NewUnstartedServer(s.Router)
	s.web.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if state == http.StateNew {
			s.open[conn] = shutdownFunc(conn)
		}
	}
	t.Cleanup(func() { s.cut(); s.web.Close() })
	return s
}

// start begins to serve, when all routes are registered.
func (s *testServer) start() { s.web.Start() }

func (s *testServer) url() string { return strings.Replace(s.web.URL, "http", "ws", 1) }

// shutdownFunc returns a function that breaks a connection, also when its descriptor has been
// duplicated.
func shutdownFunc(conn net.Conn) func() {
	file, err := conn.(*net.TCPConn).File()
	if err != nil {
		return func() { _ = conn.Close() }
	}
	defer func() { _ = file.Close() }()
	duplicate, err := net.FileConn(file)
	if err != nil {
		return func() { _ = conn.Close() }
	}
	return func() {
		_ = duplicate.(*net.TCPConn).CloseRead()
		_ = duplicate.(*net.TCPConn).CloseWrite()
		_, _ = duplicate.Close(), conn.Close()
	}
}

// cut closes all connections without a close frame.
func (s *testServer) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, shutdown := range s.open {
		shutdown()
	}
	clear(s.open)
}

// connect returns a client that is closed when the test ends.
func (s *testServer) connect(opts *client.Options) *client.Client {
	s.t.Helper()
	if opts == nil {
		opts = &client.Options{}
	}
	if opts.Backoff == (client.Backoff{}) {
		opts.Backoff = client.Backoff{Min: time.Millisecond, Max: 50 * time.Millisecond}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	c := client.New(s.url(), opts)
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(s.t, c.Close(ctx))
	})
	return c
}

type object = map[string]any

// A peer is the server's end of a connection, whose messages a test writes itself.
type peer struct {
	*websocket.Conn

	number int // 1 for the first connection
}

// A received is a message of the client.
type received struct {
	Type string
	Meta struct{ CorrelationID string }
}

// send sends a message: the answer to m, unless that is nil.
func (p peer) send(typ string, m *received, payload object) {
	meta := object{"timestamp": 1}
	if m != nil {
		meta["correlationId"] = m.Meta.CorrelationID
	}
	_ = wsjson.Write(context.Background(), p.Conn, object{"type": typ, "meta": meta, "payload": payload})
}

// serveScript passes every message of clients to a function, which answers it.
func serveScript(handle func(peer, *received)) (httpClient *http.Client, closeAll func()) {
	var connections atomic.Int64
	n := newDelayedNetwork(time.Millisecond)
	httpClient, closeServer := n.serveHandler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ws, err := websocket.Accept(w, req, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		p := peer{ws, int(connections.Add(1))}
		for {
			var m received
			if wsjson.Read(context.Background(), ws, &m) != nil {
				return
			}
			handle(p, &m)
		}
	}))
	return httpClient, func() {
		n.cut()
		closeServer()
	}
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// reconnected waits until a client whose connection was cut has another one.
func reconnected(ctx context.Context, c *client.Client) error {
	_, err := client.Call[sum](ctx, c, add{})
	if errors.CodeOf(err) == errors.Unimplemented {
		return nil // the server has answered
	}
	if errors.Is(err, client.ErrOutcomeUnknown) {
		return reconnected(ctx, c)
	}
	return err
}
