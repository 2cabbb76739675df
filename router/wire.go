package router

import (
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// Names that belong to the protocol.
const (
	typeError        = "ERROR"
	typeRPCError     = "RPC_ERROR"
	typeProgress     = "$ws:rpc-progress"
	typeHeartbeat    = "__heartbeat"
	typeHeartbeatAck = "__heartbeat_ack"
)

// encode lays out a message: {"type","meta","payload"}. A message without
// fields has no payload.
func encode(m Message) (*wsconn.Frame, error) {
	key, err := queueKey(m)
	if err != nil {
		return nil, err
	}
	frame, err := encodeAt(m, "", time.Now())
	if err != nil {
		return nil, err
	}
	frame.Droppable(key)
	return frame, nil
}

func queueKey(m Message) (key string, err error) {
	keyed, ok := m.(Keyed)
	if !ok {
		return "", nil
	}
	defer containIn(&err, "QueueKey", m)
	return keyed.MessageType() + "\x00" + keyed.QueueKey(), nil
}

func messageType(m Message) (name string, err error) {
	defer containIn(&err, "MessageType", m)
	return m.MessageType(), nil
}

// encodeReply asks the clock how long ago the call came, not what time it is,
// which takes it twice as long.
func encodeReply(ctx *Context) (*wsconn.Frame, error) {
	if ctx.reply == nil {
		return nil, errNoReply
	}
	return encodeAt(ctx.reply, ctx.correlationID, ctx.receivedAt.Add(time.Since(ctx.receivedAt)))
}

func encodeAt(m Message, correlationID string, at time.Time) (*wsconn.Frame, error) {
	typ, err := messageType(m)
	if err != nil {
		return nil, err
	}
	if typ == "" || reserved(typ) {
		return nil, &errors.Error{Code: errors.Internal, Err: fmt.Errorf("router: encode %T: its name, %q, is none of the application's", m, typ)}
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

// encodeProgress gives the update under both names that clients look for.
func encodeProgress(correlationID string, update any) (*wsconn.Frame, error) {
	frame := beginEnvelope(typeProgress, correlationID, time.Now())
	for _, key := range []string{`,"data":`, `,"payload":`} {
		frame.WriteString(key)
		if err := marshal(frame, update); err != nil {
			frame.Release()
			return nil, &errors.Error{Code: errors.Internal, Err: fmt.Errorf("router: encode progress: %w", err)}
		}
	}
	return endEnvelope(frame), nil
}

func encodeHeartbeatAck(at time.Time) *wsconn.Frame {
	frame := wsconn.NewFrame()
	frame.At = at
	frame.WriteString(`{"type":"` + typeHeartbeatAck + `","meta":{"ts":`)
	writeInt(frame, at.UnixMilli())
	frame.WriteString(`}`)
	return endEnvelope(frame)
}

// An errorPayload is the public half of an error.
type errorPayload struct {
	Code         errors.Code `json:"code"`
	Message      string      `json:"message,omitempty"`
	Details      any         `json:"details,omitempty"` // limitDetails or rawJSON
	Retryable    bool        `json:"retryable"`
	RetryAfterMs rawJSON     `json:"retryAfterMs,omitzero"` // null if no wait can help
}

// encodeError lays out an error: an RPC_ERROR if it can be matched with what it
// answers, otherwise an ERROR.
func encodeError(payload *errorPayload, correlationID string) *wsconn.Frame {
	typ := typeError
	if correlationID != "" {
		typ = typeRPCError
	}
	frame := beginEnvelope(typ, correlationID, time.Now())
	frame.WriteString(`,"payload":`)
	_ = marshal(frame, payload) // nothing in it is the application's but text
	return endEnvelope(frame)
}

func beginEnvelope(typ, correlationID string, at time.Time) *wsconn.Frame {
	frame := wsconn.NewFrame()
	frame.At = at
	frame.WriteString(`{"type":`)
	writeQuoted(frame, typ)
	frame.WriteString(`,"meta":{"timestamp":`)
	writeInt(frame, at.UnixMilli())
	if correlationID != "" {
		frame.WriteString(`,"correlationId":`)
		writeQuoted(frame, correlationID)
	}
	frame.WriteString(`}`)
	return frame
}

func endEnvelope(frame *wsconn.Frame) *wsconn.Frame {
	frame.WriteString(`}`)
	frame.Seal()
	return frame
}

func writeInt(frame *wsconn.Frame, n int64) {
	var digits [20]byte
	_, _ = frame.Write(strconv.AppendInt(digits[:0], n, 10))
}

// writeQuoted spares names the way through the encoder.
func writeQuoted(frame *wsconn.Frame, s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			_ = marshal(frame, s) // a string can be encoded
			return
		}
	}
	frame.WriteString(`"`)
	frame.WriteString(s)
	frame.WriteString(`"`)
}
