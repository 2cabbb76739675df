//go:build !js

package client

import (
	"encoding/binary"
	"reflect"
	"slices"
	"strings"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
)

// A Codec is a payload format other than JSON; see the protocol, section 11. cbor.New(nil) of package codec/cbor is one, and
// protobuf.Codec{} of package codec/protobuf another. The server must have the same one in Options.Codecs. The methods are called
// concurrently, and may call functions of the client.
type Codec interface {
	// Subprotocol returns the name of the subprotocol, which must always be the same.
	Subprotocol() string

	// Marshal encodes a [Message]. An error is returned by the function that sends it.
	Marshal(v any) ([]byte, error)

	// Unmarshal decodes a payload, which is not empty, into the value that v points to. The payload must not be modified, nor used after
	// Unmarshal has returned.
	Unmarshal(payload []byte, v any) error
}

// subprotocols returns the subprotocol of the codec, after those of Options.Header, which websocket.Dial would
// replace. Without a codec, Dial sends the header as it is.
func (o *Options) subprotocols() []string {
	if o.Codec == nil {
		return nil
	}
	return append(slices.Clone(o.Header.Values("Sec-WebSocket-Protocol")), o.Codec.Subprotocol())
}

// selected returns an error unless the server has selected the subprotocol of the codec.
func (o *Options) selected(subprotocol string) error {
	if o.Codec == nil || o.Codec.Subprotocol() == subprotocol {
		return nil
	}
	return errors.Errorf(errors.FailedPrecondition, "the server has not selected the subprotocol %s; its Options.Codecs must have the codec", o.Codec.Subprotocol())
}

// isProtocol reports whether the payload of a type is JSON in every format, because the protocol defines it.
func isProtocol(typ string) bool {
	return strings.HasPrefix(typ, "$") && typ != protocol.TypeProgress || typ == protocol.TypeError || typ == protocol.TypeRPCError
}

// encode returns the payload of a message of the application in the format of the client, or nil if the message has no members.
func (c *Client) encode(m Message) ([]byte, error) {
	codec := c.opts.Codec
	if codec == nil {
		return encodePayload(m)
	}
	if typ := reflect.Indirect(reflect.ValueOf(m)); typ.Kind() == reflect.Struct && typ.NumField() == 0 {
		return nil, nil
	}
	payload, err := codec.Marshal(m)
	if err != nil {
		return nil, encodingError(m, err)
	}
	return payload, nil
}

// A payload is what a received message contains.
type payload struct {
	bytes []byte
	codec Codec // nil: JSON
}

// decode decodes the payload into the value that v points to, unless v is nil. A message without payload has the zero value, and if its
// type is a pointer, a pointer to that.
func (p payload) decode(v any) error {
	switch {
	case v == nil:
		return nil
	case p.codec == nil && len(p.bytes) > 0:
		return decodeJSON(p.bytes, v)
	}
	if pointer := reflect.ValueOf(v).Elem(); pointer.Kind() == reflect.Pointer {
		pointer.Set(reflect.New(pointer.Type().Elem()))
		v = pointer.Interface()
	}
	if len(p.bytes) == 0 {
		return nil
	}
	return p.codec.Unmarshal(p.bytes, v)
}

// parse reads a message that the server has sent.
func (cn *conn) parse(kind websocket.MessageType, message []byte, e *envelope) error {
	codec := cn.client.opts.Codec
	if kind == websocket.MessageText {
		return decodeJSON(message, e)
	}
	if codec == nil {
		return errors.Errorf(errors.InvalidArgument, "the message is binary, although the client has not asked for a binary format")
	}
	head, payload, err := wire.SplitBinary(message)
	if err != nil {
		return err
	}
	if err := decodeJSON(head, e); err != nil {
		return err
	}
	e.Payload = payload
	if !isProtocol(e.Type) {
		e.codec = codec
	}
	return nil
}

// frame returns a message as it is sent.
func (cn *conn) frame(h *head, payload []byte) []byte {
	if cn.kind == websocket.MessageBinary {
		return h.encodeBinary(payload)
	}
	return h.encode(payload)
}

// encodeBinary is encode for a binary message.
func (h *head) encodeBinary(payload []byte) []byte {
	const lengthBytes = 2
	b := append(h.appendTo(make([]byte, lengthBytes, 128+len(payload))), '}')
	binary.BigEndian.PutUint16(b, uint16(len(b)-lengthBytes)) //nolint:gosec // names and numbers are short
	return append(b, payload...)
}
