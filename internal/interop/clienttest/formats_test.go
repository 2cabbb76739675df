package clienttest_test

import (
	"encoding/binary"
	"encoding/json"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
)

var codec = cbor.New(nil)

// isProtocol reports whether the payload of a type is JSON in every format.
func isProtocol(typ string) bool { return protocol.IsReserved(typ) && typ != protocol.TypeProgress }

// encode returns a payload in the format of the connection.
func (p *peer) encode(typ string, payload any) []byte {
	encode := json.Marshal
	switch {
	case payload == nil:
		return nil
	case p.cbor && !isProtocol(typ):
		encode = codec.Marshal
	}
	encoded, err := encode(payload)
	require.NoError(p.server.t, err)
	return encoded
}

// decode reads a message of the client. Messages of the protocol may be text on every connection.
func (p *peer) decode(kind websocket.MessageType, message []byte, f *frame) error {
	if kind == websocket.MessageText {
		if err := json.Unmarshal(message, f); err != nil {
			return err
		}
		if p.cbor && f.Payload.N != 0 && !isProtocol(f.Type) {
			return errors.New("the payload is JSON on a connection with CBOR")
		}
		return nil
	}
	head, payload, err := wire.SplitBinary(message)
	if err == nil {
		err = json.Unmarshal(head, f)
	}
	switch {
	case err != nil || len(payload) == 0:
		return err
	case isProtocol(f.Type):
		return json.Unmarshal(payload, &f.Payload)
	default:
		return codec.Unmarshal(payload, &f.Payload)
	}
}

// write sends a message whose head is an envelope without payload.
func (p *peer) write(head, payload []byte) {
	kind, message := websocket.MessageText, head
	switch {
	case p.cbor:
		kind = websocket.MessageBinary
		message = append(binary.BigEndian.AppendUint16(nil, uint16(len(head))), head...) //nolint:gosec // heads are short
		message = append(message, payload...)
	case payload != nil:
		message = append(append(append(head[:len(head)-1:len(head)-1], `,"payload":`...), payload...), '}')
	}
	_ = p.ws.Write(p.ctx, kind, message)
}
