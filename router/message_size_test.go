package router_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

type Nothing struct{}

func (Nothing) MessageType() string { return "NOTHING" }

type Panic struct{}

func (Panic) MessageType() string { return "PANIC" }

const (
	maxMessageBytes = 1000
	maxReadBytes    = 1 << 20 // above which a connection is closed
)

// newSizeServer starts a server that echoes messages of at most maxMessageBytes.
func newSizeServer(t *testing.T, opts router.Options) *httptest.Server {
	opts.Limits.MaxMessageBytes = maxMessageBytes
	r := router.New(discardLogs(opts))
	router.RPC(r, echo)
	return newTestServer(t, r)
}

func dialServer(t *testing.T, server *httptest.Server) *websocket.Conn {
	t.Helper()
	return dialWith(t, server, nil)
}

func dialWith(t *testing.T, server *httptest.Server, opts *websocket.DialOptions) *websocket.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, server.URL, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

func write(t *testing.T, ws *websocket.Conn, typ websocket.MessageType, data string) {
	t.Helper()
	require.NoError(t, ws.Write(context.Background(), typ, []byte(data)))
}

// read returns the next message without its timestamp.
func read(t *testing.T, ws *websocket.Conn) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, data, err := ws.Read(ctx)
	require.NoError(t, err)
	var frame map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data, &frame))
	var meta map[string]any
	require.NoError(t, json.Unmarshal(frame["meta"], &meta))
	delete(meta, "timestamp")
	frame["meta"], err = json.Marshal(meta)
	require.NoError(t, err)
	text, err := json.Marshal(frame)
	require.NoError(t, err)
	return string(text)
}

// sized returns an ECHO call of exactly n bytes.
func sized(n int) string {
	const head, tail = `{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5,"pad":"`, `"}}`
	return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
}

func TestLimits_MessagesAfterOversizedOneAreHandled(t *testing.T) {
	ws := dialServer(t, newSizeServer(t, router.Options{}))
	// The dropped part looks like frames; none of it may be parsed as one.
	write(t, ws, websocket.MessageBinary, sized(maxMessageBytes)+string(bytes.Repeat([]byte{0x81, 0x01, 'x'}, 3000)))
	for n := 1; n <= 2; n++ {
		write(t, ws, websocket.MessageText, fmt.Sprintf(`{"type":"ECHO","meta":{"correlationId":"c%d"},"payload":{"n":%d}}`, n, n))
	}
	assert.Contains(t, read(t, ws), fmt.Sprintf(`"kind":"payload","observed":%d,"limit":1000`, maxMessageBytes+9000))
	got := read(t, ws) + read(t, ws) // calls run concurrently, so replies arrive in any order
	for n := 1; n <= 2; n++ {
		assert.Contains(t, got, fmt.Sprintf(`"payload":{"n":%d}`, n))
	}
}

// TestLimits_CountDecompressedBytes sends messages that are within the limits only while they are
// compressed.
func TestLimits_CountDecompressedBytes(t *testing.T) {
	for name, tt := range map[string]struct {
		windows int64
		mode    websocket.CompressionMode
	}{
		"without a window":            {0, websocket.CompressionNoContextTakeover},
		"the server keeps no window":  {0, websocket.CompressionContextTakeover},
		"the server keeps its window": {1 << 20, websocket.CompressionContextTakeover},
	} {
		t.Run(name, func(t *testing.T) {
			server := newSizeServer(t, router.Options{CompressMinBytes: 1, CompressWindowBytes: tt.windows})
			testDecompressedBytes(t, dialWith(t, server, &websocket.DialOptions{CompressionMode: tt.mode, CompressionThreshold: 1}))
		})
	}
}

func testDecompressedBytes(t *testing.T, ws *websocket.Conn) {
	write(t, ws, websocket.MessageText, sized(maxMessageBytes+1))
	assert.Contains(t, read(t, ws), fmt.Sprintf(`"kind":"payload","observed":%d,"limit":1000`, maxMessageBytes+1))
	write(t, ws, websocket.MessageText, `{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5}}`)
	assert.JSONEq(t, `{"type":"ECHOED","meta":{"correlationId":"c"},"payload":{"n":5}}`, read(t, ws))
	write(t, ws, websocket.MessageText, sized(maxReadBytes+1))
	_, _, err := ws.Read(context.Background())
	assert.Equal(t, websocket.StatusMessageTooBig, websocket.CloseStatus(err), "%v", err)
}

func TestOptions_CompressWindowBytes(t *testing.T) {
	for want, opts := range map[string]router.Options{
		"router: CompressWindowBytes is -1; it must not be negative":                                            {CompressMinBytes: 100, CompressWindowBytes: -1},
		"router: CompressWindowBytes is 4096; it is for all connections together, and each of them takes 12288": {CompressMinBytes: 100, CompressWindowBytes: 4096},
		"router: CompressWindowBytes has no effect without CompressMinBytes, which enables compression":         {CompressWindowBytes: 1 << 20},
	} {
		assert.PanicsWithValue(t, want, func() { router.New(&opts) })
	}
}
