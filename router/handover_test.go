package router_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A segmentClient sends several messages in one segment.
type segmentClient struct {
	net.Conn
	r *bufio.Reader
	t *testing.T
}

// listenOn serves a router on a network and returns the address.
func listenOn(t *testing.T, r *router.Router, network string) string {
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "socket")
	}
	listener, err := net.Listen(network, addr)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(r)
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return listener.Addr().String()
}

func dialSegments(t *testing.T, network, addr string) *segmentClient {
	conn, err := net.Dial(network, addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	handshake(t, conn)
	return &segmentClient{conn, bufio.NewReader(conn), t}
}

// send writes all messages at once.
func (c *segmentClient) send(messages ...string) {
	var b []byte
	for _, m := range messages {
		if len(m) < 126 {
			b = append(b, 0x81, 0x80|byte(len(m)), 0, 0, 0, 0)
			b = append(b, m...)
		} else {
			b = append(b, text(m)...)
		}
	}
	_, err := c.Write(b)
	require.NoError(c.t, err)
}

// next returns the next text message.
func (c *segmentClient) next() (f routertest.Frame) {
	c.t.Helper()
	head, err := c.r.Peek(2)
	require.NoError(c.t, err)
	n, start := int(head[1]), 2
	if n == 126 {
		head, err = c.r.Peek(4)
		require.NoError(c.t, err)
		n, start = int(head[2])<<8|int(head[3]), 4
	}
	require.Equal(c.t, byte(0x81), head[0])
	b := make([]byte, start+n)
	_, err = io.ReadFull(c.r, b)
	require.NoError(c.t, err)
	require.NoError(c.t, json.Unmarshal(b[start:], &f))
	return f
}

// requireReply reads the reply of a call of echo.
func (c *segmentClient) requireReply(n int) {
	c.t.Helper()
	f := c.next()
	require.Equal(c.t, "ECHOED", f.Type, "%s", f.Text)
	require.Equal(c.t, fmt.Sprint(n), f.Meta.CorrelationID)
	require.JSONEq(c.t, fmt.Sprintf(`{"n":%d}`, n), string(f.Payload))
}

// numberedCall encodes a call of echo.
func numberedCall(n int) string {
	return fmt.Sprintf(`{"type":"ECHO","meta":{"correlationId":"%d"},"payload":{"n":%d}}`, n, n)
}

// TestServe_ContinuesAfterIngressExits has messages behind the one whose ingress function ends the
// goroutine of the event loop.
func TestServe_ContinuesAfterIngressExits(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{}))
			r.UseIngress(func(_ context.Context, in router.IngressContext) error {
				if in.Type == (Say{}).MessageType() {
					runtime.Goexit()
				}
				return nil
			})
			router.On(r, func(*router.Context, Say) error { return nil })
			router.RPC(r, echo)
			c := dialSegments(t, network, listenOn(t, r, network))
			for n := range 20 {
				c.send(`{"type":"SAY","payload":{"text":"x"}}`, numberedCall(2*n))
				assert.Equal(t, "ERROR", c.next().Type)
				c.requireReply(2 * n)
				c.send(numberedCall(2*n + 1))
				c.requireReply(2*n + 1)
			}
		})
	}
}
