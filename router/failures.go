package router

import (
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
)

// inspector splits the errors of the application.
//
//nolint:gochecknoglobals // never changed
var inspector = failure.Inspector[*LimitExceeded]{
	Limit:   func(l *LimitExceeded) *failure.Failure { return limitFailure(*l) },
	Details: envelope.EncodeDetails,
}

// limitFailure returns the failure of an exceeded limit.
func limitFailure(l LimitExceeded) *failure.Failure {
	f := &struct { // allocated together
		failure.Failure

		limit LimitExceeded
	}{limit: l}
	f.Payload, f.RetryAfter, f.Limit = l.payload(), l.RetryAfter, &f.limit
	return &f.Failure
}

// limitOf returns the limit of a failure, or nil if it is none.
func limitOf(f *failure.Failure) *LimitExceeded {
	l, _ := f.Limit.(*LimitExceeded) //nolint:errorlint // it is never wrapped
	return l
}

// payload returns what a client receives for an exceeded limit.
func (l *LimitExceeded) payload() protocol.ErrorPayload {
	e := errors.Error{Code: errors.ResourceExhausted, Message: l.Kind.message(), RetryAfter: l.RetryAfter}
	if l.Kind == LimitRate && l.RetryAfter == errors.Never {
		e.Code, e.Message = errors.FailedPrecondition, "the message costs more than the limit can ever allow"
	}
	payload := failure.Payload(&e)
	payload.Details = &errors.LimitDetails{Kind: string(l.Kind), Observed: l.Observed, Limit: l.Limit, Reason: l.Reason, Policy: l.Policy} // the library would copy a value
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
