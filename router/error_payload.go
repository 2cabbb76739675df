package router

import (
	"strconv"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wire"
)

// publicPayload returns what a client may see of an error, except for its details.
func publicPayload(e *errors.Error) wire.ErrorPayload {
	return wire.ErrorPayload{
		Code:         e.Code,
		Message:      e.Message,
		Retryable:    e.Retryable(),
		RetryAfterMs: retryAfterMs(e),
	}
}

// bareMessage returns the message of an error without an *errors.Error.
func bareMessage(code errors.Code) string {
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
		return strconv.AppendInt(nil, ceil(e.RetryAfter, time.Millisecond), 10)
	}
}

// ceil returns d in units, rounded up.
func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// payload returns what a client receives for an exceeded limit.
func (l *LimitExceeded) payload() wire.ErrorPayload {
	e := errors.Error{Code: errors.ResourceExhausted, Message: l.Kind.message(), RetryAfter: l.RetryAfter}
	if l.Kind == LimitRate && l.RetryAfter == errors.Never {
		e.Code, e.Message = errors.FailedPrecondition, "the message costs more than the limit can ever allow"
	}
	payload := publicPayload(&e)
	payload.Details = &wire.LimitDetails{Kind: string(l.Kind), Observed: l.Observed, Limit: l.Limit, Reason: l.Reason, Policy: l.Policy} // the library would copy a value
	return payload
}

// message returns the text for the client.
func (k LimitKind) message() string {
	switch k {
	case LimitRate:
		return "rate limit exceeded"
	case LimitPayload:
		return "message is too big"
	case LimitConcurrency:
		return "too many calls in flight"
	case LimitConnections:
		return "too many connections"
	case LimitTopics:
		return "too many topics"
	case LimitQueue:
		return "client reads too slowly"
	default:
		return string(k) + " limit exceeded"
	}
}
