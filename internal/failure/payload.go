package failure

import (
	"strconv"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
)

// Payload returns what a client may see of an error, except for its details.
func Payload(e *errors.Error) protocol.ErrorPayload {
	return protocol.ErrorPayload{
		Code:         e.Code,
		Message:      e.Message,
		Retryable:    e.Retryable(),
		RetryAfterMs: retryAfterMs(e),
	}
}

// LimitPayload returns what a client receives for an exceeded limit.
func LimitPayload(l *errors.LimitDetails, retryAfter time.Duration) protocol.ErrorPayload {
	e := errors.Error{Code: errors.ResourceExhausted, Message: limitMessage(l.Kind), RetryAfter: retryAfter}
	if l.Kind == "rate" && retryAfter == errors.Never {
		e.Code, e.Message = errors.FailedPrecondition, "the message costs more than the limit can ever allow"
	}
	payload := Payload(&e)
	payload.Details = l // the library would copy a value
	return payload
}

// limitMessage returns the text about a limit for the client. The kinds are those of a router.
func limitMessage(kind string) string {
	switch kind {
	case "rate": // often, and a constant is not allocated
		return "rate limit exceeded"
	case "payload":
		return "message is too big"
	case "in_flight":
		return "too many calls in flight"
	case "connections", "topics":
		return "too many " + kind
	case "queue":
		return "client reads too slowly"
	default:
		return kind + " limit exceeded"
	}
}

// Message returns the message of an error without an *errors.Error.
func Message(code errors.Code) string {
	switch code {
	case errors.Canceled:
		return "the call was canceled"
	case errors.DeadlineExceeded:
		return "the time for the call is up"
	default:
		return "internal error"
	}
}

// retryAfterMs returns RetryAfter in milliseconds as JSON, rounded up so that a client never
// retries too early. It is null for errors.Never, and absent if the code is not retryable.
func retryAfterMs(e *errors.Error) []byte {
	switch {
	case e.RetryAfter == errors.Never:
		return []byte("null")
	case e.RetryAfter <= 0 || !e.Retryable():
		return nil
	default:
		return strconv.AppendInt(nil, Ceil(e.RetryAfter, time.Millisecond), 10)
	}
}

// Ceil returns d in units, rounded up.
func Ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}
