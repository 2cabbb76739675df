package router_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
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

// listenOn serves a router and returns the address.
func listenOn(t *testing.T, r *router.Router) string {
	return newTestServer(t, r).Listener.Addr().String()
}

func dialSegments(t *testing.T, addr string) *segmentClient {
	conn, err := net.Dial("tcp", addr)
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

// forEachProcs runs a test with event loops that share one processor, and with several loops.
func forEachProcs(t *testing.T, test func(t *testing.T)) {
	for _, procs := range []int{1, 2, 8} {
		t.Run(fmt.Sprintf("GOMAXPROCS=%d", procs), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			test(t)
		})
	}
}

// Stall blocks its handler until the test ends it or the call is canceled.
type Stall struct {
	N int `json:"n"`
}

func (Stall) MessageType() string { return "STALL" }

// stallCall encodes a call of Stall.
func stallCall(n int) string {
	return fmt.Sprintf(`{"type":"STALL","meta":{"correlationId":"%d"},"payload":{"n":%d}}`, n, n)
}

// newStallingRouter has the calls ECHO, which does not block, and STALL, which blocks until release is
// closed. Both are serial or concurrent.
func newStallingRouter(serial bool) (r *router.Router, release chan struct{}) {
	r, release = router.New(nil), make(chan struct{})
	routes := []*router.Route{
		router.RPC(r, echo),
		router.RPC(r, func(ctx *router.Context, m Stall) (Echoed, error) {
			select {
			case <-release:
				return Echoed(m), nil
			case <-ctx.Done():
				return Echoed{}, ctx.Err()
			}
		}),
	}
	if serial {
		for _, route := range routes {
			route.Serial()
		}
	}
	return r, release
}

// TestServe_RepliesLeaveBeforeNextHandlerReturns has a blocking call behind others in one segment.
func TestServe_RepliesLeaveBeforeNextHandlerReturns(t *testing.T) {
	forEachProcs(t, func(t *testing.T) {
		for name, serial := range map[string]bool{"serial": true, "concurrent": false} {
			t.Run(name, func(t *testing.T) {
				r, release := newStallingRouter(serial)
				c := dialSegments(t, listenOn(t, r))
				c.send(numberedCall(1), numberedCall(2), numberedCall(3), stallCall(4), numberedCall(5))
				for n := 1; serial && n <= 3; n++ {
					c.requireReply(n)
				}
				if !serial {
					got := []string{c.next().Meta.CorrelationID, c.next().Meta.CorrelationID, c.next().Meta.CorrelationID, c.next().Meta.CorrelationID}
					require.ElementsMatch(t, []string{"1", "2", "3", "5"}, got)
				}
				close(release)
				c.requireReply(4)
				if serial {
					c.requireReply(5)
				}
			})
		}
	})
}

// TestServe_ReadsBehindBlockedHandler has calls whose handlers block, and behind them, in the same
// segment, their aborts and the answer to a call of the server.
func TestServe_ReadsBehindBlockedHandler(t *testing.T) {
	forEachProcs(t, func(t *testing.T) {
		for name, serial := range map[string]bool{"serial": true, "concurrent": false} {
			t.Run(name, func(t *testing.T) {
				r, _ := newStallingRouter(serial)
				addr := listenOn(t, r)
				for range 20 {
					testReadsBehindBlockedHandler(t, r, dialSegments(t, addr))
				}
			})
		}
	})
}

func testReadsBehindBlockedHandler(t *testing.T, r *router.Router, client *segmentClient) {
	client.send(numberedCall(0))
	client.requireReply(0)
	conns := collect(r)
	require.Len(t, conns, 1)
	confirmed := confirm(t.Context(), conns[0])
	call := client.next()
	require.Equal(t, "CONFIRM", call.Type)
	client.send(
		numberedCall(1), stallCall(2), answer(call.Meta.CorrelationID, "CONFIRMED", `{"yes":true}`),
		abortText("2"), stallCall(3), abortText("3"), numberedCall(4),
	)
	assert.Equal(t, Confirmed{Yes: true}, (<-confirmed).reply)
	got := map[string]string{}
	for range 4 {
		f := client.next()
		got[f.Type+" "+f.Meta.CorrelationID] = string(f.Payload)
	}
	assert.Contains(t, got["RPC_ERROR 2"], "CANCELLED", "%v", got)
	assert.Contains(t, got["RPC_ERROR 3"], "CANCELLED", "%v", got)
	assert.Contains(t, got, "ECHOED 1")
	assert.Contains(t, got, "ECHOED 4")
	require.NoError(t, client.Close())
	require.Eventually(t, func() bool { return len(collect(r)) == 0 }, time.Minute, time.Millisecond)
}
