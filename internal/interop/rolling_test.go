package interop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/freeport"
	"github.com/penstock-go/penstock/router"
)

// A Work is a call with a number of its own.
type Work struct {
	N int64 `json:"n"`
}

func (Work) MessageType() string { return "WORK" }

// A Hold is a call that is not answered until its node is released.
type Hold struct{}

func (Hold) MessageType() string { return "HOLD" }

type Worked Work

func (Worked) MessageType() string { return "WORKED" }

// A cluster is three nodes behind a load balancer, and what their clients have seen.
type cluster struct {
	t         *testing.T
	configure func(*router.Options) // nil: the options are those that every test needs
	nodes     [3]*node
	proxy     *runningProxy

	attempts, failedAttempts atomic.Int64
	calls, answered          atomic.Int64
	rejected, crossed        atomic.Int64 // calls that were sent again: after UNAVAILABLE, and after a close frame
	lastCall                 atomic.Int64

	mu      sync.Mutex
	handled map[int64]int // calls by number: how often a handler has run
}

// A node is a process in the test: its address outlives restarts.
type node struct {
	cluster *cluster
	addr    string
	router  *router.Router
	server  *http.Server
	held    chan struct{} // closed when a Hold is handled
	release chan struct{}
}

// changeHandshake sets the options that change how a handshake is answered.
func changeHandshake(o *router.Options) {
	o.RefuseAfterUpgrade = true
	o.Authenticate = func(*http.Request) (router.Identity, error) { return router.Identity{UserID: "ann"}, nil }
	o.ConnContext = func(req *http.Request) context.Context { return context.WithoutCancel(req.Context()) }
	o.OnOpen = func(context.Context, *router.Conn) error { return nil }
	o.Origins, o.Subprotocols = []string{"https://app.example"}, []string{"chat.v1"}
	o.Codecs, o.CompressMinBytes = []router.Codec{cbor.New(nil)}, 1
	o.TrustedProxies.Networks = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	o.Development = true
}

// lameDuck is longer than a proxy takes to notice: two checks, 100 milliseconds apart.
const lameDuck = time.Second

func (n *node) start() {
	t := n.cluster.t
	opts := router.Options{Logger: slog.New(slog.DiscardHandler), Timeouts: router.Timeouts{LameDuck: lameDuck}}
	if n.cluster.configure != nil {
		n.cluster.configure(&opts)
	}
	n.router = router.New(&opts)
	router.RPC(n.router, func(_ *router.Context, m Work) (Worked, error) {
		time.Sleep(rand.N(10 * time.Millisecond))
		n.cluster.mu.Lock()
		defer n.cluster.mu.Unlock()
		n.cluster.handled[m.N]++
		return Worked(m), nil
	})
	n.held, n.release = make(chan struct{}), make(chan struct{})
	router.RPC(n.router, func(*router.Context, Hold) (Worked, error) {
		close(n.held)
		<-n.release
		return Worked{}, nil
	})
	listener, err := net.Listen("tcp", n.addr)
	require.NoError(t, err)
	n.server = &http.Server{Handler: withHealth(n.router), ReadHeaderTimeout: timeout, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	go func(server *http.Server) { _ = server.Serve(listener) }(n.server)
}

func (n *node) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	assert.NoError(n.cluster.t, n.router.Shutdown(ctx))
	_ = n.server.Shutdown(ctx) // fails if the proxy keeps a connection of its checks open
	_ = n.server.Close()
}

// waitServes waits until the proxy has sent clients to the node.
func (n *node) waitServes() {
	n.cluster.t.Helper()
	require.Eventually(n.cluster.t, func() bool { return n.router.Stats().Conns > 0 }, timeout, time.Millisecond, "the node has no connections")
}

// start starts the nodes, and a proxy in front of them with the configuration of the guide to reverse proxies.
func (c *cluster) start(program proxyProgram) {
	var nodes [3]string
	for i := range c.nodes {
		nodes[i] = freeport.Address()
		c.nodes[i] = &node{cluster: c, addr: nodes[i]}
		c.nodes[i].start()
	}
	pairs := map[string][]string{
		"haproxy": {"inter 1s", "inter 100ms"},
		"caddy":   {"health_interval 1s", "health_interval 100ms"},
	}
	c.proxy = program.start(c.t, nodes, pairs[program.name]...)
}

// dial counts connection attempts.
func (c *cluster) dial(ctx context.Context) *websocket.Conn {
	for ctx.Err() == nil {
		c.attempts.Add(1)
		attempt, cancel := context.WithTimeout(context.Background(), timeout)
		ws, _, err := c.proxy.dial(attempt, "127.0.0.1", nil)
		cancel()
		if err == nil {
			return ws
		}
		c.failedAttempts.Add(1)
		c.t.Logf("attempt failed: %v", err)
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// connectOften opens and closes connections until ctx is done.
func (c *cluster) connectOften(ctx context.Context) {
	for ctx.Err() == nil {
		if ws := c.dial(ctx); ws != nil {
			conn := newClient(c.t, ws)
			_ = ws.Close(websocket.StatusNormalClosure, "")
			c.wasAdmitted(conn)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// wasAdmitted counts an attempt whose connection has ended as failed if the node has refused it after the upgrade.
func (c *cluster) wasAdmitted(conn *client) {
	for range conn.received { // until its end
	}
	if websocket.CloseStatus(conn.end) >= 4000 {
		c.failedAttempts.Add(1)
		c.t.Logf("attempt was refused: %v", conn.end)
	}
}

// call sends one call after the other until ctx is done, as the protocol describes: after 1012 it
// reconnects when the close frame says so, and sends an unanswered call again.
func (c *cluster) call(ctx context.Context) {
	conn := c.connect(ctx)
	for conn != nil && ctx.Err() == nil {
		n := c.lastCall.Add(1)
		c.calls.Add(1)
		for conn != nil && !c.ask(conn, n) {
			if conn.ended() {
				time.Sleep(c.reconnectDelay(conn.end))
				conn = c.connect(context.Background())
			}
		}
		time.Sleep(rand.N(5 * time.Millisecond))
	}
	if conn != nil {
		_ = conn.ws.Close(websocket.StatusNormalClosure, "")
	}
}

func (c *cluster) connect(ctx context.Context) *client {
	if ws := c.dial(ctx); ws != nil {
		return newClient(c.t, ws)
	}
	return nil
}

// ended reports whether the connection has ended. It must not be called while an answer is expected.
func (c *client) ended() bool {
	select {
	case _, ok := <-c.received:
		return !ok
	default:
		return false
	}
}

// ask sends a call and reports whether it got the reply. Otherwise the server has rejected the call
// with UNAVAILABLE, or the connection has ended.
func (c *cluster) ask(conn *client, n int64) bool {
	if conn.ended() {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	text := fmt.Sprintf(`{"type":"WORK","meta":{"correlationId":"%d"},"payload":{"n":%[1]d}}`, n)
	_ = conn.ws.Write(ctx, websocket.MessageText, []byte(text)) // the reader returns the close frame
	select {
	case answer, ok := <-conn.received:
		switch {
		case !ok:
			c.crossed.Add(1)
			return false
		case strings.Contains(string(answer), `"type":"WORKED"`):
			c.answered.Add(1)
			return true
		}
		assert.Contains(c.t, string(answer), `"code":"UNAVAILABLE"`)
		c.rejected.Add(1)
	case <-ctx.Done():
		assert.Fail(c.t, "no answer and no close frame")
	}
	return false
}

// reconnectDelay returns the delay in the close frame of a shutdown.
func (c *cluster) reconnectDelay(err error) time.Duration {
	closed, ok := errors.AsType[websocket.CloseError](err)
	if !assert.True(c.t, ok, "the connection has ended without a close frame: %v", err) {
		return 0
	}
	var reason struct{ RetryAfterMs int64 }
	assert.Equal(c.t, websocket.StatusServiceRestart, closed.Code)
	assert.NoError(c.t, json.Unmarshal([]byte(closed.Reason), &reason))
	assert.Positive(c.t, reason.RetryAfterMs)
	return time.Duration(reason.RetryAfterMs) * time.Millisecond
}

// TestRollingRestart restarts three nodes behind each proxy, one after the other, under load. No
// connection attempt fails, and every call is answered and handled exactly once.
func TestRollingRestart(t *testing.T) {
	for _, program := range proxyPrograms {
		t.Run(program.name, func(t *testing.T) {
			t.Parallel()
			testRollingRestart(t, program)
		})
	}
}

func testRollingRestart(t *testing.T, program proxyProgram) {
	c := &cluster{t: t, configure: changeHandshake, handled: map[int64]int{}}
	c.start(program)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() { c.connectOften(ctx) })
	}
	for range 30 {
		clients.Go(func() { c.call(ctx) })
	}
	for _, n := range c.nodes {
		n.waitServes()
	}
	for _, n := range c.nodes {
		n.stop()
		n.start()
		n.waitServes()
	}
	cancel()
	clients.Wait()
	for _, n := range c.nodes {
		n.stop()
	}
	t.Logf("%d connection attempts, %d calls; sent again: %d after UNAVAILABLE, %d that crossed a close frame",
		c.attempts.Load(), c.calls.Load(), c.rejected.Load(), c.crossed.Load())
	assert.Zero(t, c.failedAttempts.Load(), "failed connection attempts")
	assert.Equal(t, c.calls.Load(), c.answered.Load(), "every call is answered")
	for number, times := range c.handled {
		assert.Equal(t, 1, times, "call %d", number)
	}
	assert.Len(t, c.handled, int(c.calls.Load()))
}

// TestRollingRestart_HeldNode has a node that cannot end its shutdown, because a handler runs. No attempt fails
// meanwhile: a proxy that chooses the node sees that it must try another one.
func TestRollingRestart_HeldNode(t *testing.T) {
	for _, program := range proxyPrograms {
		for name, configure := range map[string]func(*router.Options){"no options": nil, "options of handshakes": changeHandshake} {
			t.Run(program.name+", "+name, func(t *testing.T) {
				t.Parallel()
				c := &cluster{t: t, configure: configure, handled: map[int64]int{}}
				c.start(program)
				release := c.nodes[0].hold()
				stopped := make(chan struct{})
				go func() {
					defer close(stopped)
					c.nodes[0].stop()
				}()
				c.nodes[0].waitDrains()
				for range 20 {
					conn := c.connect(t.Context())
					assert.True(t, c.ask(conn, c.lastCall.Add(1)), "%v", conn.end)
					_ = conn.ws.Close(websocket.StatusNormalClosure, "")
					c.wasAdmitted(conn)
				}
				release()
				<-stopped
				assert.Zero(t, c.failedAttempts.Load(), "failed connection attempts")
				for _, n := range c.nodes[1:] {
					n.stop()
				}
			})
		}
	}
}

// hold occupies a handler of the node until the function is called that it returns.
func (n *node) hold() (release func()) {
	t := n.cluster.t
	ws, _, err := websocket.Dial(t.Context(), "ws://"+n.addr+"/ws", nil)
	require.NoError(t, err)
	conn := newClient(t, ws)
	require.NoError(t, ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"HOLD","meta":{"correlationId":"1"}}`)))
	<-n.held
	return func() {
		close(n.release)
		for range conn.received { // until its end
		}
	}
}

// waitDrains waits until the node refuses further connections.
func (n *node) waitDrains() {
	n.cluster.t.Helper()
	require.Eventually(n.cluster.t, func() bool {
		resp, err := http.Get("http://" + n.addr + "/ws/http")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusServiceUnavailable
	}, timeout, 10*time.Millisecond)
}
