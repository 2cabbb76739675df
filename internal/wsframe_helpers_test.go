package internal_test

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wsframe"
)

// An end is one end of a pipe, on which the package under test speaks.
type end struct {
	net.Conn
	*wsframe.Reader

	role wsframe.Role
}

// newEnd returns an end that answers pings.
func newEnd(t testing.TB, conn net.Conn, role wsframe.Role) *end {
	t.Cleanup(func() { _ = conn.Close() })
	e := &end{Conn: conn, role: role}
	e.Reader = wsframe.NewReader(bufio.NewReader(conn), 1<<20, func(payload []byte) error {
		go e.write(wsframe.Pong, string(payload)) // the other end may be writing
		return nil
	})
	return e
}

// write may be called on any goroutine. If it fails, so does what waits for the message.
func (e *end) write(op wsframe.Opcode, payload string) {
	_, _ = e.Write(wsframe.AppendFrame(nil, e.role, op, []byte(payload)))
}

// hijacker is a ResponseWriter whose Hijack returns an end of a pipe.
type hijacker struct {
	*httptest.ResponseRecorder

	conn net.Conn
}

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

// handshake is the request of a client that upgrades its connection.
func wsHandshake() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="},
	}
	return r
}

// A pipeTransport answers a handshake with one end of a pipe.
type pipeTransport struct{ conn net.Conn }

func (p pipeTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return &http.Response{
		StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Request: r, Body: p.conn,
		Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Accept": {base64.StdEncoding.EncodeToString(sum[:])}},
	}, nil
}

// coderClient returns a client of github.com/coder/websocket, and the server's end of its
// connection.
func coderClient(t testing.TB) (*websocket.Conn, *end) {
	client, server := net.Pipe()
	ws, _, err := websocket.Dial(t.Context(), "ws://example.com", &websocket.DialOptions{HTTPClient: &http.Client{Transport: pipeTransport{client}}})
	require.NoError(t, err)
	ws.SetReadLimit(-1)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws, newEnd(t, server, wsframe.Server)
}

// coderServer returns a server of github.com/coder/websocket, and the client's end of its
// connection. Its response goes to the ResponseWriter.
func coderServer(t testing.TB) (*websocket.Conn, *end) {
	client, server := net.Pipe()
	ws, err := websocket.Accept(hijacker{httptest.NewRecorder(), server}, wsHandshake(), nil)
	require.NoError(t, err)
	ws.SetReadLimit(-1)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws, newEnd(t, client, wsframe.Client)
}

// next reads what github.com/coder/websocket has received.
func next(t testing.TB, ws *websocket.Conn) (message string, binary bool) {
	typ, b, err := ws.Read(context.Background())
	require.NoError(t, err)
	return string(b), typ == websocket.MessageBinary
}
