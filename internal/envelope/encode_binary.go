package envelope

import (
	"fmt"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file encodes messages for connections with a Codec: the head is JSON, the payload of the
// application is in the format of the codec, and that of a message of the protocol is JSON.

// encodeWith encodes m, a value of the type, in the format of a codec.
func (e *Encoding) encodeWith(codec Codec, m Message, head wire.OutgoingHead) (*wsconn.Frame, error) {
	if len(head.Type) > wire.MaxNameBytes {
		return nil, &errors.Error{Code: errors.Internal, Err: fmt.Errorf("router: encode %T: its MessageType has %d bytes; it must have at most %d", m, len(head.Type), wire.MaxNameBytes)}
	}
	if e.noFields {
		frame := beginBinary(head)
		frame.SealBinary()
		return frame, nil
	}
	if protocol.IsMessage(m) {
		return e.encodeBinaryJSON(m, head)
	}
	return encodeBinaryPayload(codec, m, head)
}

// encodeBinaryJSON encodes m, a value of the type, with its payload in JSON.
func (e *Encoding) encodeBinaryJSON(m Message, head wire.OutgoingHead) (*wsconn.Frame, error) {
	frame := beginBinary(head)
	if err := e.marshal(frame, m); err != nil {
		frame.Release()
		return nil, &errors.Error{Code: errors.Internal, Err: fmt.Errorf("router: encode %s: %w", head.Type, err)}
	}
	frame.SealBinary()
	return frame, nil
}

// encodeBinaryPayload encodes a message whose payload is v.
func encodeBinaryPayload(codec Codec, v any, head wire.OutgoingHead) (*wsconn.Frame, error) {
	payload, err := marshalWith(codec, v)
	if err != nil {
		return nil, &errors.Error{Code: errors.Internal, Err: fmt.Errorf("router: encode %s, a %T, for the subprotocol %s: %w", head.Type, v, codec.Subprotocol(), err)}
	}
	frame := beginBinary(head)
	_, _ = frame.Write(payload)
	frame.SealBinary()
	return frame, nil
}

// encodeBinaryError is encodeError for a connection with a Codec.
func encodeBinaryError(payload *protocol.ErrorPayload, head wire.OutgoingHead) *wsconn.Frame {
	frame := beginBinary(head)
	_ = marshalAny(frame, payload) // cannot fail: inspect has encoded the application's details
	frame.SealBinary()
	return frame
}

// beginBinary returns a frame that holds the envelope up to the payload.
func beginBinary(head wire.OutgoingHead) *wsconn.Frame {
	frame := wsconn.NewFrame()
	frame.At = head.At
	frame.Append(func(b []byte) []byte { return wire.AppendBinaryHead(b, &head) })
	return frame
}

// marshalWith encodes v, and recovers a panic of the codec.
func marshalWith(codec Codec, v any) (payload []byte, err error) {
	defer recoverAsError(&err)
	return codec.Marshal(v)
}
