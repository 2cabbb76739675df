//go:build !js

package routertest

import (
	"context"
	"encoding/binary"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/router"
)

// codecKey is the key of the codec in the context of a request.
type codecKey struct{}

// Codec offers the subprotocol of a codec, in addition to those of the header
// Sec-WebSocket-Protocol that options before it set. Messages are then sent and
// received in its format. The handshake fails the test unless the server selects
// it.
func Codec(codec router.Codec) Option {
	return func(r *http.Request) {
		offer := codec.Subprotocol()
		if others := r.Header.Get("Sec-WebSocket-Protocol"); others != "" {
			offer = others + ", " + offer
		}
		r.Header.Set("Sec-WebSocket-Protocol", offer)
		*r = *r.WithContext(context.WithValue(r.Context(), codecKey{}, codec))
	}
}

// SendBinary sends a WebSocket binary message, without any encoding. An error fails
// the test.
func (c *Conn) SendBinary(message []byte) {
	c.t.Helper()
	if err := c.ws.Write(context.Background(), websocket.MessageBinary, message); err != nil {
		c.t.Fatalf("routertest: send: %v", err)
	}
}

// binaryEnvelope encodes a message with a codec. A message whose type has no fields
// has no payload.
func binaryEnvelope(t testing.TB, codec router.Codec, m router.Message, meta outgoingMeta) []byte {
	t.Helper()
	meta.Timestamp = time.Now().UnixMilli()
	head, err := jsonv2.Marshal(struct {
		Type string       `json:"type"`
		Meta outgoingMeta `json:"meta"`
	}{m.MessageType(), meta})
	if err != nil {
		t.Fatalf("routertest: encode the head of %s: %v", m.MessageType(), err)
	}
	b := append(binary.BigEndian.AppendUint16(nil, uint16(len(head))), head...) //nolint:gosec // a type has at most 128 bytes
	if typ := reflect.TypeOf(m); typ.Kind() == reflect.Struct && typ.NumField() == 0 {
		return b
	}
	payload, err := codec.Marshal(m)
	if err != nil {
		t.Fatalf("routertest: encode %s: %v", m.MessageType(), err)
	}
	return append(b, payload...)
}

// parseFrame parses a received message.
func parseFrame(typ websocket.MessageType, data []byte) (Frame, error) {
	frame := Frame{Text: string(data), Binary: typ == websocket.MessageBinary}
	if !frame.Binary {
		return frame, jsonv2.Unmarshal(data, &frame)
	}
	envelope, err := wire.ParseBinary(data)
	if err != nil {
		return frame, err
	}
	head := data[2 : len(data)-len(envelope.Payload)] // behind its length
	if err := jsonv2.Unmarshal(head, &frame); err != nil {
		return frame, err
	}
	frame.Payload = envelope.Payload
	return frame, nil
}

// newMessage returns a pointer to a new message, and the pointer that a payload is
// decoded into, which is another one if M is a pointer type.
func newMessage[M router.Message]() (m *M, target any) {
	m = new(M)
	if typ := reflect.TypeFor[M](); typ.Kind() == reflect.Pointer {
		*m = reflect.New(typ.Elem()).Interface().(M)
		return m, *m
	}
	return m, m
}

// unmarshal decodes the payload of a frame. A frame of a type without fields has none.
func (c *Conn) unmarshal(frame Frame, v any) error {
	elem := reflect.TypeOf(v).Elem()
	switch {
	case len(frame.Payload) == 0 && (!frame.Binary || elem.Kind() == reflect.Struct && elem.NumField() == 0):
		return nil
	case frame.Binary:
		return c.codec.Unmarshal(frame.Payload, v)
	default:
		return jsonv2.Unmarshal(frame.Payload, v)
	}
}
