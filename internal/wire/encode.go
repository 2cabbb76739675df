package wire

import (
	"strconv"
	"time"

	"github.com/penstock-go/penstock/internal/jsonplan"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/tracing"
)

// An OutgoingHead is the part of an envelope that precedes the payload.
type OutgoingHead struct {
	Type          string
	CorrelationID string // "" is not sent
	TimeoutMs     int64  // 0 is not sent
	At            time.Time
	Trace         *tracing.TraceContext // nil is not sent
}

// AppendHead appends an envelope up to the end of meta. The caller appends further members and "}".
func AppendHead(b []byte, head *OutgoingHead) []byte {
	b = append(b, `{"type":`...)
	b = jsonplan.AppendString(b, head.Type)
	b = append(b, `,"meta":{"timestamp":`...)
	b = strconv.AppendInt(b, head.At.UnixMilli(), 10)
	if head.CorrelationID != "" {
		b = append(b, `,"correlationId":`...)
		b = jsonplan.AppendString(b, head.CorrelationID)
	}
	if head.TimeoutMs != 0 {
		b = append(b, `,"timeoutMs":`...)
		b = strconv.AppendInt(b, head.TimeoutMs, 10)
	}
	b = appendTrace(b, head.Trace)
	return append(b, '}')
}

// AppendHeartbeatAck appends the envelope that acknowledges a heartbeat.
func AppendHeartbeatAck(b []byte, at time.Time) []byte {
	b = append(b, `{"type":"`+protocol.TypeHeartbeatAck+`","meta":{"ts":`...)
	b = strconv.AppendInt(b, at.UnixMilli(), 10)
	return append(b, '}', '}')
}
