package router

import (
	"fmt"
	"reflect"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file encodes messages for connections with a Codec: the head is JSON, the payload of the
// application is in the format of the codec, and that of a message of the protocol is JSON.

// encodeBinary encodes a message.
func encodeBinary(codec Codec, m Message, head wire.OutgoingHead) (*wsconn.Frame, error) {
	if len(head.Type) > wire.MaxNameBytes {
		return nil, &errors.Error{Code: errors.Internal, Err: fmt.Errorf("router: encode %T: its MessageType has %d bytes; it must have at most %d", m, len(head.Type), wire.MaxNameBytes)}
	}
	if t := reflect.TypeOf(m); t.Kind() == reflect.Struct && t.NumField() == 0 {
		frame := beginBinary(head)
		frame.SealBinary()
		return frame, nil
	}
	if protocol.IsMessage(m) {
		codec = jsonPayload{codec}
	}
	return encodeBinaryPayload(codec, m, head)
}

// A jsonPayload is a Codec that encodes as JSON.
type jsonPayload struct{ Codec }

// Marshal encodes v as JSON.
func (jsonPayload) Marshal(v any) ([]byte, error) {
	var payload byteWriter
	err := marshal(&payload, v)
	return payload, err
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
	_ = marshal(frame, payload) // cannot fail: inspect has encoded the application's details
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
