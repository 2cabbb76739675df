package wire

import (
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonplan"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/protocol"
)

// MaxReasonBytes is the length of the longest reason of a close frame (RFC 6455, section 5.5).
const MaxReasonBytes = 123

// CloseReason returns the reason of a close frame for an error: its code, its delay and its
// message as a JSON object of at most MaxReasonBytes. The message is cut at a rune if it does not
// fit, and absent if nothing of it fits. A code so long that it and the delay do not fit becomes
// INTERNAL.
func CloseReason(p *protocol.ErrorPayload) string {
	b := appendReasonHead(nil, p.Code, p.RetryAfterMs)
	if len(b)+len(`}`) > MaxReasonBytes {
		b = appendReasonHead(nil, errors.Internal, p.RetryAfterMs)
	}
	return string(append(appendReasonMessage(b, p.Message), '}'))
}

// appendReasonHead appends what must not be cut.
func appendReasonHead(b []byte, code errors.Code, retryAfterMs jsonv2.Value) []byte {
	b = append(b, `{"code":`...)
	b = jsonplan.AppendString(b, string(code))
	if len(retryAfterMs) > 0 {
		b = append(b, `,"retryAfterMs":`...)
		b = append(b, retryAfterMs...)
	}
	return b
}

// appendReasonMessage appends the runes of a message that fit.
func appendReasonMessage(b []byte, message string) []byte {
	head := len(b)
	b = append(b, `,"message":"`...)
	text := len(b)
	var quoted [16]byte
	for _, r := range message { // invalid UTF-8 becomes U+FFFD
		q := jsonplan.AppendString(quoted[:0], string(r))
		escaped := q[1 : len(q)-1]
		if len(b)+len(escaped)+len(`"}`) > MaxReasonBytes {
			break
		}
		b = append(b, escaped...)
	}
	if len(b) == text {
		return b[:head]
	}
	return append(b, '"')
}
