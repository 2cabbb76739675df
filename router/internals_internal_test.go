package router

import (
	"net/http/httptest"
	"testing"
	"time"
	"unsafe"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/netpoll"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// TestConn_FitsIntoItsSizeClass fails when a new field makes every connection larger by a whole size
// class of the allocator. What few connections need belongs behind a pointer.
func TestConn_FitsIntoItsSizeClass(t *testing.T) {
	const sizeClass = 320 // bytes; the next one is 352
	assert.LessOrEqual(t, unsafe.Sizeof(Conn{}), uintptr(sizeClass))
}

// TestContext_LeavesRoomForMessage fails when a new field makes most messages larger by a whole
// size class: a Context and a message of 24 bytes, such as a string and a number, share an
// allocation.
func TestContext_LeavesRoomForMessage(t *testing.T) {
	const sizeClass, message = 192, 24 // bytes
	assert.LessOrEqual(t, unsafe.Sizeof(Context{}), uintptr(sizeClass-message))
}

func TestConn_GreetedAfterTheGreeting(t *testing.T) {
	r := New(nil)
	server := httptest.NewServer(r)
	defer server.Close()
	ws, _, err := websocket.Dial(t.Context(), server.URL, nil)
	require.NoError(t, err)
	defer ws.CloseNow()
	exchange := func(text string) {
		require.NoError(t, ws.Write(t.Context(), websocket.MessageText, []byte(text)))
		_, _, err := ws.Read(t.Context())
		require.NoError(t, err)
	}
	greeted := func() (found bool) {
		for c := range r.Conns() {
			found = c.sub.HasGreeted()
		}
		return found
	}
	exchange(`{"type":"__heartbeat"}`)
	assert.False(t, greeted())
	exchange(`{"type":"$ws:hello"}`)
	assert.True(t, greeted())
}

// TestAdmitCall_RefusesStreamThatDrainMayNotHaveSeen begins to drain between the two checks of
// draining. A call is admitted, because drain waits for it.
func TestAdmitCall_RefusesStreamThatDrainMayNotHaveSeen(t *testing.T) {
	for _, stream := range []bool{true, false} {
		c := &Conn{router: New(nil)}
		route := &Route{rpc: true, stream: stream}
		c.draining.Store(drainingForRestart)
		c.endStreams()
		refused := c.admitCall(&incoming{route: route, call: &Context{conn: c, route: route}}, false)
		if !stream {
			assert.Nil(t, refused)
			continue
		}
		require.NotNil(t, refused)
		assert.Equal(t, errors.Unavailable, refused.Payload.Code)
		running, _ := c.calls.Start(1)
		assert.Equal(t, int64(1), running, "the refused stream is not counted")
	}
}

// A brokenCodec encodes and decodes nothing.
type brokenCodec struct{}

func (brokenCodec) Subprotocol() string         { return "broken" }
func (brokenCodec) Marshal(any) ([]byte, error) { return nil, errors.New("broken") }
func (brokenCodec) Unmarshal([]byte, any) error { return errors.New("broken") }

// TestBinary_ProtocolMessagesHaveJSON encodes and decodes a message of the protocol on a connection
// whose codec is not called.
func TestBinary_ProtocolMessagesHaveJSON(t *testing.T) {
	frame, err := envelope.Encode(brokenCodec{}, protocol.GoAway{ReconnectAfterMs: 812}, wire.OutgoingHead{CorrelationID: "c", At: time.UnixMilli(7)})
	require.NoError(t, err)
	envelope, err := wire.ParseBinary(frame.Text())
	require.NoError(t, err)
	assert.Equal(t, protocol.TypeGoAway, string(envelope.Type))
	assert.Equal(t, "c", string(envelope.CorrelationID))
	assert.JSONEq(t, `{"reconnectAfterMs":812}`, string(envelope.Payload))

	r := New(&Options{Codecs: []Codec{brokenCodec{}}})
	route := protocolCall(r, func(_ *Context, m protocol.GoAway) (protocol.GoAway, error) { return m, nil })
	c := &Conn{router: r, sub: topic.Subscriber{Format: 1}}
	in := &incoming{route: route, codec: c.codec(), Message: wsconn.Message{Buffer: &netpoll.Buffer{Bytes: frame.Text()}}}
	ctx, err := c.decode(in)
	require.NoError(t, err)
	assert.Equal(t, protocol.GoAway{ReconnectAfterMs: 812}, ctx.Message())
}

// Greet lets the tests treat a client as one that has sent $ws:hello.
func (c *Conn) Greet() { c.sub.Greet() }
