package router_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

type Nothing struct{}

func (Nothing) MessageType() string { return "NOTHING" }

type Panic struct{}

func (Panic) MessageType() string { return "PANIC" }

type Fail struct{}

func (Fail) MessageType() string { return "FAIL" }

type Hang struct{}

func (Hang) MessageType() string { return "HANG" }

const (
	maxMessageBytes = 1000
	maxReadBytes    = 1 << 20 // above which a connection is closed
)

// newMalformedServer starts a server with one handler for each way in which a message can fail.
func newMalformedServer(t *testing.T, opts *router.Options) *httptest.Server {
	opts.Logger = slog.New(slog.DiscardHandler)
	opts.Limits.MaxMessageBytes = maxMessageBytes
	r := router.New(opts)
	router.RPC(r, echo)
	router.On(r, func(*router.Context, Say) error { return nil })
	router.On(r, func(ctx *router.Context, _ Nothing) error { return ctx.Send(Nothing{}) })
	router.On(r, func(*router.Context, Panic) error { panic("secret") })
	router.On(r, func(*router.Context, Fail) error { return errors.New("secret") })
	router.RPC(r, func(ctx *router.Context, _ Hang) (Nothing, error) {
		<-ctx.Conn().Context().Done() // ignores the deadline of the call
		return Nothing{}, nil
	})
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return server
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

func rejection(typ, correlationID string, code errors.Code, rest string) string {
	meta := "{}"
	if correlationID != "" {
		meta = fmt.Sprintf(`{"correlationId":%q}`, correlationID)
	}
	return fmt.Sprintf(`{"type":%q,"meta":%s,"payload":{"code":%q,%s}}`, typ, meta, code, rest)
}

// invalidArgument returns the answer to a malformed message.
func invalidArgument(correlationID, message string) string {
	typ := "ERROR"
	if correlationID != "" {
		typ = "RPC_ERROR"
	}
	return rejection(typ, correlationID, errors.InvalidArgument, fmt.Sprintf(
		`"message":%q,"details":{"reason":%q},"retryable":false`, message, message))
}

func invalidField(correlationID, name, reason string) string {
	typ := "ERROR"
	if correlationID != "" {
		typ = "RPC_ERROR"
	}
	return rejection(typ, correlationID, errors.InvalidArgument, fmt.Sprintf(
		`"message":%q,"details":{"field":%q,"reason":%q},"retryable":false`, name+" "+reason, name, reason))
}

func tooBig(correlationID string, size int) string {
	typ := "ERROR"
	if correlationID != "" {
		typ = "RPC_ERROR"
	}
	return rejection(typ, correlationID, errors.ResourceExhausted, fmt.Sprintf(
		`"message":"message is too big","details":{"kind":"payload","observed":%d,"limit":%d},"retryable":false,"retryAfterMs":null`,
		size, maxMessageBytes))
}

const unimplemented = `"message":"no handler for this type","retryable":false`

// sized returns an ECHO call of exactly n bytes.
func sized(n int) string {
	const head, tail = `{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5,"pad":"`, `"}}`
	return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
}

func TestMalformedInput_IsAnsweredAndConnectionSurvives(t *testing.T) {
	echoed := `{"type":"ECHOED","meta":{"correlationId":"c"},"payload":{"n":5}}`
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for _, tt := range []struct {
		name   string
		send   string
		binary bool
		want   string
	}{
		{name: "empty frame", send: "", want: invalidArgument("", "message is empty")},
		{name: "no members", send: "{}", want: invalidArgument("", "type is missing")},
		{name: "array", send: "[]", want: invalidArgument("", "message must be a JSON object")},
		{name: "number as type", send: `{"type":7}`, want: invalidArgument("", "type must be a string of 1 to 128 bytes")},
		{name: "number as type of a call", send: `{"type":7,"meta":{"correlationId":"c"}}`, want: invalidArgument("c", "type must be a string of 1 to 128 bytes")},
		{name: "missing type", send: `{"meta":{"correlationId":"c"},"payload":{}}`, want: invalidArgument("c", "type is missing")},
		{name: "empty type", send: `{"type":""}`, want: invalidArgument("", "type must be a string of 1 to 128 bytes")},
		{name: "long type", send: `{"type":"` + strings.Repeat("T", 300) + `"}`, want: invalidArgument("", "type must be a string of 1 to 128 bytes")},
		{name: "type of 10 kB", send: `{"type":"` + strings.Repeat("T", 10_000) + `"}`, want: tooBig("", 10_011)},
		{name: "deep nesting", send: `{"type":"ECHO","meta":{"correlationId":"c"},"payload":` + deep + `}`, want: invalidArgument("c", "message is nested deeper than 64 levels")},
		{name: "truncated", send: `{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5`, want: invalidArgument("c", "message ends too early")},
		{name: "duplicate type", send: `{"type":"ECHO","type":"SAY","meta":{"correlationId":"c"},"payload":{"n":5}}`, want: invalidArgument("c", `duplicate key "type"`)},
		{name: "duplicate payload", send: `{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5},"payload":{"n":6}}`, want: invalidArgument("c", `duplicate key "payload"`)},
		{name: "invalid UTF-8 in a binary message", binary: true, send: "{\"type\":\"SAY\",\"payload\":{\"room\":\"a\",\"text\":\"\xff\"}}", want: invalidArgument("", "message is not valid UTF-8")},
		{name: "text after the object", send: `{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5}} {}`, want: invalidArgument("c", "message is not valid JSON: unexpected character at byte 63")},
		{name: "JSON in a binary frame", binary: true, send: `{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5}}`, want: echoed},
		{name: "binary garbage", binary: true, send: "\x00\x01\x02\xff", want: invalidArgument("", "message must be a JSON object")},
		{name: "meta is null", send: `{"type":"ECHO","meta":null,"payload":{"n":5}}`, want: invalidArgument("", "meta must be an object")},
		{name: "number as correlationId", send: `{"type":"ECHO","meta":{"correlationId":7},"payload":{"n":5}}`, want: invalidArgument("", "correlationId must be a string of at most 128 bytes")},
		{name: "long correlationId", send: `{"type":"ECHO","meta":{"correlationId":"` + strings.Repeat("c", 200) + `"},"payload":{"n":5}}`, want: invalidArgument("", "correlationId must be a string of at most 128 bytes")},
		{name: "correlationId of 10 kB", send: `{"type":"ECHO","meta":{"correlationId":"` + strings.Repeat("c", 10_000) + `"},"payload":{"n":5}}`, want: tooBig("", 10_061)},
		{name: "reserved $ws:", send: `{"type":"$ws:x"}`, want: rejection("ERROR", "", errors.Unimplemented, unimplemented)},
		{name: "reserved __", send: `{"type":"__x"}`, want: rejection("ERROR", "", errors.Unimplemented, unimplemented)},
		{name: "reserved ERROR", send: `{"type":"ERROR"}`, want: rejection("ERROR", "", errors.Unimplemented, unimplemented)},
		{name: "unknown type", send: `{"type":"NOPE"}`, want: rejection("ERROR", "", errors.Unimplemented, unimplemented)},
		{name: "call of an unknown type", send: `{"type":"NOPE","meta":{"correlationId":"c"}}`, want: rejection("RPC_ERROR", "c", errors.Unimplemented, unimplemented)},
		{name: "payload missing", send: `{"type":"SAY","meta":{}}`, want: invalidField("", "payload", "is missing")},
		{name: "payload of the wrong type", send: `{"type":"SAY","payload":[]}`, want: invalidField("", "payload", "must be an object, not an array")},
		{name: "field of the wrong type", send: `{"type":"SAY","payload":{"room":7,"text":"x"}}`, want: invalidField("", "room", "must be a string, not a number")},
		{name: "number out of range", send: `{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":1e99}}`, want: invalidField("c", "n", "must be an integer in range, not 1e99")},
		{name: "failing Validate", send: `{"type":"SAY","payload":{"room":"a","text":""}}`, want: invalidField("", "text", "must not be empty")},
		{name: "one byte below the limit", send: sized(maxMessageBytes - 1), want: echoed},
		{name: "at the limit", send: sized(maxMessageBytes), want: echoed},
		{name: "one byte above the limit", send: sized(maxMessageBytes + 1), want: tooBig("c", maxMessageBytes+1)},
		{name: "one byte below the read limit", send: sized(maxReadBytes - 1), want: tooBig("c", maxReadBytes-1)},
		{name: "at the read limit", send: sized(maxReadBytes), want: tooBig("c", maxReadBytes)},
		{name: "handler panics", send: `{"type":"PANIC"}`, want: rejection("ERROR", "", errors.Internal, `"message":"internal error","retryable":false`)},
		{name: "handler returns a bare error", send: `{"type":"FAIL","meta":{"correlationId":"c"}}`, want: rejection("RPC_ERROR", "c", errors.Internal, `"message":"internal error","retryable":false`)},
		{name: "handler never replies", send: `{"type":"HANG","meta":{"correlationId":"c"}}`, want: rejection("RPC_ERROR", "c", errors.DeadlineExceeded, `"message":"the time for the call is up","retryable":true`)},
		{name: "no payload for a message without fields", send: `{"type":"NOTHING"}`, want: `{"type":"NOTHING","meta":{}}`},
		{name: "heartbeat", send: `{"type":"__heartbeat"}`, want: "__heartbeat_ack"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := newMalformedServer(t, &router.Options{Timeouts: router.Timeouts{Call: 100 * time.Millisecond}})
			ws := dialServer(t, server)
			typ := websocket.MessageText
			if tt.binary {
				typ = websocket.MessageBinary
			}
			write(t, ws, typ, tt.send)
			got := read(t, ws)
			if tt.name == "heartbeat" {
				assert.Contains(t, got, tt.want)
			} else {
				assert.JSONEq(t, tt.want, got)
			}
			write(t, ws, websocket.MessageText, `{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5}}`)
			assert.JSONEq(t, echoed, read(t, ws), "the connection must still work")
		})
	}
}

func TestLimits_MaxReadBytesClosesConnection(t *testing.T) {
	ws := dialServer(t, newMalformedServer(t, &router.Options{}))
	write(t, ws, websocket.MessageText, sized(maxReadBytes+1))
	_, _, err := ws.Read(context.Background())
	assert.Equal(t, websocket.StatusMessageTooBig, websocket.CloseStatus(err), "%v", err)
}

func TestMalformedInput_InvalidUTF8TextClosesConnection(t *testing.T) {
	ws := dialServer(t, newMalformedServer(t, &router.Options{}))
	write(t, ws, websocket.MessageText, "{\"type\":\"SAY\",\"payload\":{\"room\":\"a\",\"text\":\"\xff\"}}")
	_, _, err := ws.Read(context.Background())
	assert.Equal(t, websocket.StatusInvalidFramePayloadData, websocket.CloseStatus(err), "%v", err)
}

func TestLimits_MessagesAfterOversizedOneAreHandled(t *testing.T) {
	ws := dialServer(t, newMalformedServer(t, &router.Options{}))
	// The dropped part looks like frames; none of it may be parsed as one.
	write(t, ws, websocket.MessageBinary, sized(maxMessageBytes)+string(bytes.Repeat([]byte{0x81, 0x01, 'x'}, 3000)))
	for n := 1; n <= 2; n++ {
		write(t, ws, websocket.MessageText, fmt.Sprintf(`{"type":"ECHO","meta":{"correlationId":"c%d"},"payload":{"n":%d}}`, n, n))
	}
	assert.JSONEq(t, tooBig("c", maxMessageBytes+9000), read(t, ws))
	got := read(t, ws) + read(t, ws) // calls run concurrently, so replies arrive in any order
	for n := 1; n <= 2; n++ {
		assert.Contains(t, got, fmt.Sprintf(`"payload":{"n":%d}`, n))
	}
}

func TestFragments_MessageIsReassembled(t *testing.T) {
	ws := dialServer(t, newMalformedServer(t, &router.Options{}))
	w, err := ws.Writer(context.Background(), websocket.MessageText)
	require.NoError(t, err)
	text := `{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5}` + strings.Repeat(" ", 10_000) + `}`
	for i := range text {
		_, err := io.WriteString(w, text[i:i+1])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	assert.JSONEq(t, tooBig("c", len(text)), read(t, ws))

	text = `{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5}}`
	w, err = ws.Writer(context.Background(), websocket.MessageText)
	require.NoError(t, err)
	for i := range 10_000 { // most fragments are empty
		part := ""
		if i < len(text) {
			part = text[i : i+1]
		}
		_, err := io.WriteString(w, part)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	assert.JSONEq(t, `{"type":"ECHOED","meta":{"correlationId":"c"},"payload":{"n":5}}`, read(t, ws))
}

// TestLimits_CountDecompressedBytes sends messages that are within the limits only while they are
// compressed.
func TestLimits_CountDecompressedBytes(t *testing.T) {
	server := newMalformedServer(t, &router.Options{CompressMinBytes: 1})
	ws := dialWith(t, server, &websocket.DialOptions{CompressionMode: websocket.CompressionNoContextTakeover, CompressionThreshold: 1})
	write(t, ws, websocket.MessageText, sized(maxMessageBytes+1))
	assert.JSONEq(t, tooBig("c", maxMessageBytes+1), read(t, ws))
	write(t, ws, websocket.MessageText, `{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5}}`)
	assert.JSONEq(t, `{"type":"ECHOED","meta":{"correlationId":"c"},"payload":{"n":5}}`, read(t, ws))
	write(t, ws, websocket.MessageText, sized(maxReadBytes+1))
	_, _, err := ws.Read(context.Background())
	assert.Equal(t, websocket.StatusMessageTooBig, websocket.CloseStatus(err), "%v", err)
}
