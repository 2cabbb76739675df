package router_test

import (
	"bufio"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// handshakeWith returns a handshake with further header lines.
func handshakeWith(lines string) string {
	return "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" + lines + "\r\n"
}

func TestServeHTTP_RejectsRequestWithBody(t *testing.T) {
	r := router.New(discardLogs(router.Options{Limits: router.Limits{Conns: 1}}))
	server := httptest.NewServer(r)
	defer server.Close()
	for _, lines := range []string{"Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
		_, err = io.WriteString(conn, handshakeWith(lines)) // the body never follows
		require.NoError(t, err)
		reader := bufio.NewReader(conn)
		resp, err := http.ReadResponse(reader, nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.JSONEq(t, `{"code":"INVALID_ARGUMENT","message":"a handshake must not have a body","retryable":false}`, string(body))
		_, err = reader.ReadByte()
		assert.ErrorIs(t, err, io.EOF, "the server does not wait for the body")
		_ = conn.Close()
	}
	assert.NoError(t, r.Shutdown(t.Context()), "no refused request counts as a connection")
}

// TestTimeouts_PingIntervalMayBeShorterThanPong expects ten pings in a row, each answered by a pong.
func TestTimeouts_PingIntervalMayBeShorterThanPong(t *testing.T) {
	r := router.New(discardLogs(router.Options{Timeouts: router.Timeouts{Ping: 20 * time.Millisecond, Pong: 10 * time.Second}}))
	server := httptest.NewServer(r)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
	_, err = io.WriteString(conn, handshakeWith(""))
	require.NoError(t, err)
	reader := bufio.NewReader(conn)
	_, err = http.ReadResponse(reader, nil)
	require.NoError(t, err)
	for range 10 {
		ping := make([]byte, 2)
		_, err = io.ReadFull(reader, ping)
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
			_, err = io.WriteString(conn, handshakeWith(""))
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

func TestServeHTTP_RejectsTwoVersions(t *testing.T) {
	server := httptest.NewServer(router.New(discardLogs(router.Options{})))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, handshakeWith("Sec-WebSocket-Version: 8\r\n"))
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
	assert.True(t, resp.Close, "what follows is not read as HTTP")
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
