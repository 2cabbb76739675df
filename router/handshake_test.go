package router_test

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// handshakeText is an opening handshake.
const handshakeText = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"

// TestTimeouts_PingIntervalMayBeShorterThanPong expects ten pings in a row, each answered by a pong.
func TestTimeouts_PingIntervalMayBeShorterThanPong(t *testing.T) {
	r := router.New(discardLogs(router.Options{Timeouts: router.Timeouts{Ping: 20 * time.Millisecond, Pong: 10 * time.Second}}))
	conn := dialUpgraded(t, newTestServer(t, r))
	require.NoError(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
	for range 10 {
		ping := make([]byte, 2)
		_, err := io.ReadFull(conn, ping)
		require.NoError(t, err)
		require.Equal(t, "\x89\x00", string(ping))
		_, err = io.WriteString(conn, "\x8a\x80"+strings.Repeat("\x00", 4))
		require.NoError(t, err)
	}
}

// TestServeHTTP_ClientThatResetsDuringTheHandshakeIsNoError has a client that closes its connection
// while Authenticate runs.
func TestServeHTTP_ClientThatResetsDuringTheHandshakeIsNoError(t *testing.T) {
	for name, tt := range map[string]struct {
		opts   router.Options
		err    error // of Authenticate
		reason string
		code   errors.Code
	}{
		"accepted": {router.Options{}, nil, "handshake", errors.Canceled},
		"refused after the upgrade": {
			router.Options{RefuseAfterUpgrade: true}, errors.Errorf(errors.Unauthenticated, "log in"), "authentication", errors.Unauthenticated,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var conn *net.TCPConn
			var reports recorder[router.ErrorReport]
			var refusals recorder[router.Refusal]
			opts := discardLogs(tt.opts)
			opts.OnError, opts.OnRefused = reports.add, refusals.add
			opts.Authenticate = func(req *http.Request) (router.Identity, error) {
				assert.NoError(t, conn.SetLinger(0)) // Close resets
				assert.NoError(t, conn.Close())
				<-req.Context().Done() // net/http has seen the reset
				return router.Identity{}, tt.err
			}
			var errorLog lockedBuffer
			served := make(chan struct{})
			r := router.New(opts)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				defer close(served)
				r.ServeHTTP(w, req)
			}))
			server.Config.ErrorLog = log.New(&errorLog, "", 0)
			server.Start()
			defer server.Close()
			dialed, err := net.Dial("tcp", server.Listener.Addr().String())
			require.NoError(t, err)
			conn = dialed.(*net.TCPConn)
			_, err = io.WriteString(conn, handshakeText)
			require.NoError(t, err)
			<-served
			require.NoError(t, r.Shutdown(t.Context()))
			assert.Empty(t, errorLog.String())
			assert.Empty(t, reports.all())
			require.Len(t, refusals.all(), 1)
			assert.Equal(t, tt.reason, refusals.all()[0].Reason)
			assert.Equal(t, tt.code, refusals.all()[0].Code)
		})
	}
}

// TestErrorDetails_OfAnyDepthLeaveTheAnswerValid nests the details as deep as the encoder
// allows them alone, which is too deep inside an answer.
func TestErrorDetails_OfAnyDepthLeaveTheAnswerValid(t *testing.T) {
	for _, depth := range []int{100, 9_990, 9_998, 9_999, 10_000} {
		nested := any(map[string]any{})
		for range depth - 2 {
			nested = []any{nested}
		}
		r := router.New(discardLogs(router.Options{}))
		router.On(r, func(*router.Context, Say) error {
			return &errors.Error{Code: errors.Aborted, Details: map[string]any{"nested": nested}}
		})
		conn := routertest.Dial(t, r)
		conn.Send(Say{Room: "go", Text: "hi"})
		answer := conn.Next()
		assert.Equal(t, "ERROR", answer.Type, "%d levels", depth)
		assert.True(t, json.Valid([]byte(answer.Text)), "%d levels", depth)
	}
}

// closeFrameAfter opens a connection over TCP, sends bytes after the handshake, and returns the
// close frame of the server.
func closeFrameAfter(t *testing.T, r *router.Router, sent string) router.CloseError {
	t.Helper()
	conn := dialUpgraded(t, newTestServer(t, r))
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err := io.WriteString(conn, sent)
	require.NoError(t, err)
	for {
		header := make([]byte, 2)
		_, err = io.ReadFull(conn, header)
		require.NoError(t, err)
		payload := make([]byte, header[1])
		_, err = io.ReadFull(conn, payload)
		require.NoError(t, err)
		if header[0] == 0x88 {
			return router.CloseError{Code: router.StatusCode(binary.BigEndian.Uint16(payload)), Reason: string(payload[2:])}
		}
	}
}

func TestCloseReason_OfTransportIsJSON(t *testing.T) {
	const key = "\x00\x00\x00\x00"
	for _, tt := range []struct {
		name, sent string
		want       router.CloseError
	}{
		{"reserved bit", "\xf1\x80" + key, router.CloseError{Code: 1002, Reason: `{"code":"INVALID_ARGUMENT","message":"a reserved bit is set"}`}},
		{"invalid UTF-8", "\x81\x81" + key + "\xff", router.CloseError{Code: 1007, Reason: `{"code":"INVALID_ARGUMENT","message":"invalid UTF-8"}`}},
		{"control frames", strings.Repeat("\x89\x80"+key, 200), router.CloseError{Code: 1008, Reason: `{"code":"RESOURCE_EXHAUSTED","message":"too many control frames"}`}},
		{"slow message", "\x81\x85" + key + "h", router.CloseError{Code: 1008, Reason: `{"code":"RESOURCE_EXHAUSTED","message":"message took too long"}`}},
		{"long message", "\x81\xff\x00\x00\x00\x00\x00\x10\x00\x01" + key, router.CloseError{Code: 1009, Reason: `{"code":"RESOURCE_EXHAUSTED","retryAfterMs":null,"message":"message is too big"}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{
				Limits:   router.Limits{MaxMessageBytes: 1000},
				Timeouts: router.Timeouts{Message: 50 * time.Millisecond, Pong: 50 * time.Millisecond},
			}))
			assert.Equal(t, tt.want, closeFrameAfter(t, r, tt.sent))
		})
	}
}

func TestCloseReason_OfSlowConsumerIsJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limits recorder[router.LimitExceeded]
		r := router.New(&router.Options{Limits: router.Limits{QueueMessages: 2}, OnLimitExceeded: limits.add})
		conn := routertest.Dial(t, r)
		synctest.Wait()
		conn.Pause()
		slow := onlyConn(t, r)
		for range 10 {
			_ = slow.Send(Nothing{})
		}
		conn.Resume()
		assert.Equal(t, router.CloseError{Code: 1013, Reason: `{"code":"RESOURCE_EXHAUSTED","message":"client reads too slowly"}`}, conn.Closed())
		require.Len(t, limits.all(), 1)
		assert.Equal(t, router.LimitQueue, limits.all()[0].Kind)
		assert.EqualValues(t, 2, limits.all()[0].Limit)
	})
}

// TestHandshake_ExtendedConnect has the handshake of RFC 8441, as net/http passes it on.
func TestHandshake_ExtendedConnect(t *testing.T) {
	for _, visible := range []bool{false, true} {
		req := httptest.NewRequest(http.MethodConnect, "/ws", strings.NewReader(""))
		req.Proto, req.ProtoMajor, req.ProtoMinor, req.ContentLength = "HTTP/2.0", 2, 0, -1
		req.Header = http.Header{":protocol": {"websocket"}, "Sec-Websocket-Version": {"13"}}
		w := httptest.NewRecorder()
		router.New(discardLogs(router.Options{RefuseAfterUpgrade: visible})).ServeHTTP(w, req)
		assert.Equal(t, http.StatusNotImplemented, w.Code)
		assert.Contains(t, w.Body.String(), "does not support WebSocket over HTTP/2")
	}
}

// The tests of connections over HTTP are those of internal/fallback.

func TestHTTPFallback_MistakesPanic(t *testing.T) {
	assert.PanicsWithValue(t, "router: FallbackOptions.MaxConns is -1; it must not be negative", func() {
		router.New(nil).HTTPFallback(&router.FallbackOptions{MaxConns: -1})
	})
	r := router.New(nil)
	r.HTTPFallback(nil)
	assert.PanicsWithValue(t, "router: HTTPFallback is called twice; mount its handler at several paths instead", func() { r.HTTPFallback(nil) })
	r = router.New(nil)
	routertest.Dial(t, r)
	assert.PanicsWithValue(t, "router: HTTPFallback called after the router began to serve; call it before the first request", func() { r.HTTPFallback(nil) })
	assert.Equal(t, router.TransportWebSocket, collect(r)[0].Transport())
}
