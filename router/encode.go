package router

import (
	"fmt"
	"reflect"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// encode encodes an event as a frame that a full send queue may drop. codec is nil for JSON.
func encode(codec Codec, m Message) (*wsconn.Frame, error) {
	key, err := conflationKey(m)
	if err != nil {
		return nil, err
	}
	return encodeDroppable(codec, m, key, time.Now())
}

// conflationKey returns the key of a Conflatable, including its type, or "".
func conflationKey(m Message) (key string, err error) {
	keyed, ok := m.(Conflatable)
	if !ok {
		return "", nil
	}
	defer recoverMethod(&err, "ConflationKey", m)
	return keyed.MessageType() + "\x00" + keyed.ConflationKey(), nil
}

// messageType returns the name of a message that application code created. Its method may
// panic, for example if m is a nil pointer.
func messageType(m Message) (name string, err error) {
	defer recoverMethod(&err, "MessageType", m)
	return m.MessageType(), nil
}

// encodeReply encodes the reply of a call. It computes the time from that of the call: reading
// only the monotonic clock takes half as long as reading both clocks.
func encodeReply(ctx *Context) (*wsconn.Frame, error) {
	if ctx.reply == nil {
		return nil, errNoReply
	}
	return encodeAt(ctx.conn.codec(), ctx.reply, ctx.correlationID, ctx.receivedAt.Add(time.Since(ctx.receivedAt)))
}

// encodeAt encodes a message. A message whose type has no fields has no payload. codec is nil for
// JSON.
func encodeAt(codec Codec, m Message, correlationID string, at time.Time) (*wsconn.Frame, error) {
	typ, err := messageType(m)
	if err != nil {
		return nil, err
	}
	if typ == "" || wire.Reserved(typ) && !isProtocolMessage(m) {
		return nil, &errors.Error{Code: errors.Internal, Err: fmt.Errorf("router: encode %T: its MessageType %q is empty or reserved for the protocol", m, typ)}
	}
	if reflect.TypeOf(m).Kind() == reflect.Pointer && reflect.ValueOf(m).IsNil() {
		return nil, &errors.Error{Code: errors.Internal, Err: fmt.Errorf("router: encode %s: the %T is nil", typ, m)}
	}
	if codec != nil {
		return encodeBinary(codec, m, typ, correlationID, at)
	}
	frame := beginEnvelope(typ, correlationID, at)
	if t := reflect.TypeOf(m); t.Kind() == reflect.Struct && t.NumField() == 0 {
		return endEnvelope(frame), nil
	}
	frame.WriteString(`,"payload":`)
	if err := marshal(frame, m); err != nil {
		frame.Release()
		return nil, &errors.Error{Code: errors.Internal, Err: fmt.Errorf("router: encode %s: %w", typ, err)}
	}
	return endEnvelope(frame), nil
}

// encodeProgress encodes the update as both data and payload, because clients may read either. A
// binary message contains it once. codec is nil for JSON.
func encodeProgress(codec Codec, correlationID string, update any) (*wsconn.Frame, error) {
	if codec != nil {
		return encodeBinaryPayload(codec, update, wire.TypeProgress, correlationID, time.Now())
	}
	frame := beginEnvelope(wire.TypeProgress, correlationID, time.Now())
	for _, key := range []string{`,"data":`, `,"payload":`} {
		frame.WriteString(key)
		if err := marshal(frame, update); err != nil {
			frame.Release()
			return nil, &errors.Error{Code: errors.Internal, Err: fmt.Errorf("router: encode progress: %w", err)}
		}
	}
	return endEnvelope(frame), nil
}

// encodeHeartbeatAck encodes the answer to a heartbeat.
func encodeHeartbeatAck(binary bool, at time.Time) *wsconn.Frame {
	frame := wsconn.NewFrame()
	frame.At = at
	if binary {
		frame.Append(func(b []byte) []byte { return wire.AppendBinaryHeartbeatAck(b, at) })
		frame.SealBinary()
		return frame
	}
	frame.Append(func(b []byte) []byte { return wire.AppendHeartbeatAck(b, at) })
	frame.Seal()
	return frame
}

// encodeControl encodes a message of the protocol without a payload.
func encodeControl(binary bool, typ, correlationID string) *wsconn.Frame {
	if binary {
		frame := beginBinary(typ, correlationID, time.Now())
		frame.SealBinary()
		return frame
	}
	return endEnvelope(beginEnvelope(typ, correlationID, time.Now()))
}

// encodeError encodes an error: as RPC_ERROR if the message has a correlation ID, otherwise as
// ERROR.
func encodeError(binary bool, payload *wire.ErrorPayload, correlationID string) *wsconn.Frame {
	if binary {
		return encodeBinaryError(payload, correlationID)
	}
	frame := beginEnvelope(errorType(correlationID), correlationID, time.Now())
	frame.WriteString(`,"payload":`)
	_ = marshal(frame, payload) // cannot fail: inspect has encoded the application's details
	return endEnvelope(frame)
}

// errorType returns the type of an error in answer to a message.
func errorType(correlationID string) string {
	if correlationID != "" {
		return wire.TypeRPCError
	}
	return wire.TypeError
}

// beginEnvelope returns a frame that holds the envelope up to the payload.
func beginEnvelope(typ, correlationID string, at time.Time) *wsconn.Frame {
	frame := wsconn.NewFrame()
	frame.At = at
	frame.Append(func(b []byte) []byte { return wire.AppendHead(b, typ, correlationID, at) })
	return frame
}

// endEnvelope closes the envelope and seals the frame.
func endEnvelope(frame *wsconn.Frame) *wsconn.Frame {
	frame.WriteString(`}`)
	frame.Seal()
	return frame
}
