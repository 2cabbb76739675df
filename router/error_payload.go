package router

import (
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
)

// payload returns what a client receives for an exceeded limit.
func (l *LimitExceeded) payload() protocol.ErrorPayload {
	e := errors.Error{Code: errors.ResourceExhausted, Message: l.Kind.message(), RetryAfter: l.RetryAfter}
	if l.Kind == LimitRate && l.RetryAfter == errors.Never {
		e.Code, e.Message = errors.FailedPrecondition, "the message costs more than the limit can ever allow"
	}
	payload := failure.Payload(&e)
	payload.Details = &protocol.LimitDetails{Kind: string(l.Kind), Observed: l.Observed, Limit: l.Limit, Reason: l.Reason, Policy: l.Policy} // the library would copy a value
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
