package router

import (
	"testing"
	"time"

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
