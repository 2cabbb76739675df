package wire

import (
	"strconv"
	"time"

	"github.com/penstock-go/penstock/internal/jsonv2"

	"github.com/penstock-go/penstock/errors"
)

// AppendHead appends an envelope up to the end of meta. The caller appends further
// members and "}". correlationID is "" if the message is not a reply.
func AppendHead(b []byte, typ, correlationID string, at time.Time) []byte {
	b = append(b, `{"type":`...)
	b = appendQuoted(b, typ)
	b = append(b, `,"meta":{"timestamp":`...)
	b = strconv.AppendInt(b, at.UnixMilli(), 10)
	if correlationID != "" {
		b = append(b, `,"correlationId":`...)
		b = appendQuoted(b, correlationID)
	}
	return append(b, '}')
}

// AppendHeartbeatAck appends the envelope that acknowledges a heartbeat.
func AppendHeartbeatAck(b []byte, at time.Time) []byte {
	b = append(b, `{"type":"`+TypeHeartbeatAck+`","meta":{"ts":`...)
	b = strconv.AppendInt(b, at.UnixMilli(), 10)
	return append(b, '}', '}')
}

// appendQuoted skips the encoder for names of plain ASCII.
func appendQuoted(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			b, _ = jsonv2.AppendQuote(b, s) // invalid UTF-8 becomes U+FFFD
			return b
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// An ErrorPayload is the payload of an error message: the public part of an error.
type ErrorPayload struct {
	Code         errors.Code  `json:"code"`
	Message      string       `json:"message,omitempty"`
	Details      any          `json:"details,omitempty"`
	Retryable    bool         `json:"retryable"`
	RetryAfterMs jsonv2.Value `json:"retryAfterMs,omitzero"` // null if no wait can help
}

// A LimitDetails is the Details of a limit that was exceeded.
type LimitDetails struct {
	Kind     string `json:"kind"`
	Observed int64  `json:"observed"`
	Limit    int64  `json:"limit"`
	Reason   string `json:"reason,omitempty"`
}
