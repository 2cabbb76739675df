package envelope

import (
	"fmt"
	"reflect"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// payloadMember begins the payload of a JSON envelope.
const payloadMember = `,"payload":`

// EncodeEvent encodes an event as a frame that a full send queue may drop. codec is nil for JSON.
func EncodeEvent(codec Codec, m Message) (*wsconn.Frame, error) {
	key, err := queueKey(m)
	if err != nil {
		return nil, err
	}
	return encodeDroppable(codec, m, key, time.Now())
}

// encodeDroppable encodes an event with its conflation key.
func encodeDroppable(codec Codec, m Message, key string, at time.Time) (*wsconn.Frame, error) {
	frame, err := Encode(codec, m, wire.OutgoingHead{At: at})
	if err != nil {
		return nil, err
	}
	frame.Droppable(key)
	return frame, nil
}

// queueKey returns the key by which a send queue conflates messages: that of a Conflatable, after its type,
// or "".
func queueKey(m Message) (string, error) {
	key, ok, err := conflationKey(m)
	if !ok || err != nil {
		return "", err
	}
	name, err := MessageType(m)
	return name + "\x00" + key, err
}

// conflationKey returns the key of a Conflatable. It reports false for other messages.
func conflationKey(m Message) (key string, ok bool, err error) {
	keyed, ok := m.(conflatable)
	if !ok {
		return "", false, nil
	}
	defer recoverMethod(&err, "ConflationKey", m)
	return keyed.ConflationKey(), true, nil
}

// StateKey returns the key whose state a stored message is, or "" if it is not a Conflatable. Other
// than that of a queue, it does not contain the message's type.
func StateKey(m Message, removed bool) (key string, err error) {
	key, ok, err := conflationKey(m)
	switch {
	case err != nil:
		return "", err
	case ok:
		return "=" + key, nil // the empty key is a key, too
	case removed:
		return "", errors.Errorf(errors.InvalidArgument, "Removed needs a router.Conflatable; %T has no ConflationKey", m)
	}
	return "", nil
}

// MessageType returns the name of a message that application code created. Its method may
// panic, for example if m is a nil pointer.
func MessageType(m Message) (name string, err error) {
	defer recoverMethod(&err, "MessageType", m)
	return m.MessageType(), nil
}

// EncodePointer encodes the message of the type that m points to. The library would copy a message
// that is not a pointer.
func (e *Encoding) EncodePointer(m Message, head wire.OutgoingHead) (*wsconn.Frame, error) {
	if err := e.setType(&head, m); err != nil {
		return nil, err
	}
	return e.encode(m, head)
}

// Encode encodes a message and sets the type of its head. A message whose type has no fields has no
// payload. codec is nil for JSON, in which the messages of the protocol are in every format.
func Encode(codec Codec, m Message, head wire.OutgoingHead) (*wsconn.Frame, error) {
	if m == nil {
		_, err := MessageType(m)
		return nil, err
	}
	e := EncodingOf(reflect.TypeOf(m))
	if err := e.setType(&head, m); err != nil {
		return nil, err
	}
	if e.isNil(m) {
		return nil, &errors.Error{Code: errors.Internal, Err: fmt.Errorf("router: encode %s: the %T is nil", head.Type, m)}
	}
	if codec != nil {
		return e.encodeWith(codec, m, head)
	}
	return e.encode(m, head)
}

// setType sets the type of the head to that of m, which only a message of the protocol may have reserved.
func (e *Encoding) setType(head *wire.OutgoingHead, m Message) (err error) {
	if head.Type, err = MessageType(m); err != nil {
		return err
	}
	if head.Type == "" || protocol.IsReserved(head.Type) && !protocol.IsMessage(m) {
		return &errors.Error{Code: errors.Internal, Err: fmt.Errorf("router: encode %v: its MessageType %q is empty or reserved for the protocol", e.typ, head.Type)}
	}
	return nil
}

// encode encodes m, a value of the type or a pointer to one.
func (e *Encoding) encode(m Message, head wire.OutgoingHead) (*wsconn.Frame, error) {
	frame := beginEnvelope(head)
	if e.noFields {
		return endEnvelope(frame), nil
	}
	frame.WriteString(payloadMember)
	if err := e.marshal(frame, m); err != nil {
		frame.Release()
		return nil, &errors.Error{Code: errors.Internal, Err: fmt.Errorf("router: encode %s: %w", head.Type, err)}
	}
	return endEnvelope(frame), nil
}

// EncodeProgress encodes the update as both data and payload, because clients may read either. A
// binary message contains it once. codec is nil for JSON.
func EncodeProgress(codec Codec, correlationID string, update any) (*wsconn.Frame, error) {
	head := wire.OutgoingHead{Type: protocol.TypeProgress, CorrelationID: correlationID, At: time.Now()}
	if codec != nil {
		return encodeBinaryPayload(codec, update, head)
	}
	frame := beginEnvelope(head)
	frame.WriteString(`,"data":`)
	start := len(frame.Text())
	if err := marshalAny(frame, update); err != nil {
		frame.Release()
		return nil, &errors.Error{Code: errors.Internal, Err: fmt.Errorf("router: encode progress: %w", err)}
	}
	data := frame.Text()[start:]
	frame.WriteString(payloadMember)
	frame.Append(func(b []byte) []byte { return append(b, data...) })
	return endEnvelope(frame), nil
}

// EncodeHeartbeatAck encodes the answer to a heartbeat.
func EncodeHeartbeatAck(binary bool, at time.Time) *wsconn.Frame {
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

// EncodeControl encodes a message of the protocol without a payload.
func EncodeControl(binary bool, typ, correlationID string) *wsconn.Frame {
	head := wire.OutgoingHead{Type: typ, CorrelationID: correlationID, At: time.Now()}
	if binary {
		frame := beginBinary(head)
		frame.SealBinary()
		return frame
	}
	return endEnvelope(beginEnvelope(head))
}

// EncodeError encodes an error: as RPC_ERROR if the message has a correlation ID, otherwise as
// ERROR.
func EncodeError(binary bool, payload *protocol.ErrorPayload, correlationID string) *wsconn.Frame {
	head := wire.OutgoingHead{Type: errorType(correlationID), CorrelationID: correlationID, At: time.Now()}
	if binary {
		return encodeBinaryError(payload, head)
	}
	frame := beginEnvelope(head)
	frame.WriteString(payloadMember)
	_ = marshalAny(frame, payload) // cannot fail: inspect has encoded the application's details
	return endEnvelope(frame)
}

// errorType returns the type of an error in answer to a message.
func errorType(correlationID string) string {
	if correlationID != "" {
		return protocol.TypeRPCError
	}
	return protocol.TypeError
}

// beginEnvelope returns a frame that holds the envelope up to the payload.
func beginEnvelope(head wire.OutgoingHead) *wsconn.Frame {
	frame := wsconn.NewFrame()
	frame.At = head.At
	frame.Append(func(b []byte) []byte { return wire.AppendHead(b, &head) })
	return frame
}

// endEnvelope closes the envelope and seals the frame.
func endEnvelope(frame *wsconn.Frame) *wsconn.Frame {
	frame.WriteString(`}`)
	frame.Seal()
	return frame
}

// EncodePayload encodes a message whose payload is encoded already, or empty if it has none.
func EncodePayload(binary bool, payload []byte, head wire.OutgoingHead) *wsconn.Frame {
	if binary {
		frame := beginBinary(head)
		_, _ = frame.Write(payload)
		frame.SealBinary()
		return frame
	}
	frame := beginEnvelope(head)
	if len(payload) > 0 {
		frame.WriteString(payloadMember)
		_, _ = frame.Write(payload)
	}
	return endEnvelope(frame)
}

// Payload returns what EncodePayload needs for the message in a frame with this head.
func Payload(frame *wsconn.Frame, f Format, head wire.OutgoingHead) []byte {
	text := frame.Text()
	if f != JSON {
		return text[len(wire.AppendBinaryHead(nil, &head)):]
	}
	text = text[len(wire.AppendHead(nil, &head)) : len(text)-1]
	return text[min(len(text), len(payloadMember)):]
}
