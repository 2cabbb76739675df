package router

import (
	"fmt"
	"reflect"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file encodes messages for connections with a Codec: the head is JSON, the payload of the
// application is in the format of the codec, and that of a message of the protocol is JSON.

// encodeBinary encodes a message of the given type.
func encodeBinary(codec Codec, m Message, typ, correlationID string, at time.Time) (*wsconn.Frame, error) {
	if len(typ) > wire.MaxNameBytes {
		return nil, &errors.Error{Code: errors.Internal, Err: fmt.Errorf("router: encode %T: its MessageType has %d bytes; it must have at most %d", m, len(typ), wire.MaxNameBytes)}
	}
	if t := reflect.TypeOf(m); t.Kind() == reflect.Struct && t.NumField() == 0 {
		frame := beginBinary(typ, correlationID, at)
		frame.SealBinary()
		return frame, nil
	}
	if isProtocolMessage(m) {
		codec = jsonPayload{codec}
	}
	return encodeBinaryPayload(codec, m, typ, correlationID, at)
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
func encodeBinaryPayload(codec Codec, v any, typ, correlationID string, at time.Time) (*wsconn.Frame, error) {
	payload, err := marshalWith(codec, v)
	if err != nil {
		return nil, &errors.Error{Code: errors.Internal, Err: fmt.Errorf("router: encode %s, a %T, for the subprotocol %s: %w", typ, v, codec.Subprotocol(), err)}
	}
	frame := beginBinary(typ, correlationID, at)
	_, _ = frame.Write(payload)
	frame.SealBinary()
	return frame, nil
}

// encodeBinaryError is encodeError for a connection with a Codec.
func encodeBinaryError(payload *wire.ErrorPayload, correlationID string) *wsconn.Frame {
	frame := beginBinary(errorType(correlationID), correlationID, time.Now())
	_ = marshal(frame, payload) // cannot fail: inspect has encoded the application's details
	frame.SealBinary()
	return frame
}

// beginBinary returns a frame that holds the envelope up to the payload.
func beginBinary(typ, correlationID string, at time.Time) *wsconn.Frame {
	frame := wsconn.NewFrame()
	frame.At = at
	frame.Append(func(b []byte) []byte { return wire.AppendBinaryHead(b, typ, correlationID, at) })
	return frame
}
