package router

import (
	"fmt"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
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

// codeOf returns the code of an error for observers and spans: "" for nil.
func codeOf(err error) errors.Code {
	if _, ok := failure.AsType[*LimitExceeded](err); ok {
		return errors.ResourceExhausted
	}
	return errors.CodeOf(err)
}

// payload returns what a client receives for an exceeded limit.
func (l *LimitExceeded) payload() protocol.ErrorPayload {
	if l.Option == optionElements {
		e := errors.InvalidField("payload", fmt.Sprintf("must have at most %d elements and members, not %d", l.Limit, l.Observed))
		payload := failure.Payload(e)
		payload.Details, _ = envelope.EncodeDetails(e.Details)
		return payload
	}
	details := &errors.LimitDetails{Kind: string(l.Kind), Observed: l.Observed, Limit: l.Limit, Reason: l.Reason, Policy: l.Policy}
	return failure.LimitPayload(details, l.RetryAfter)
}

// transportReason returns the reason of a close frame that the transport sends: because the client
// violated RFC 6455, or because it sent too much, sent too slowly or read too slowly.
func transportReason(code int, text string) string {
	e := errors.Error{Code: errors.ResourceExhausted, Message: text}
	switch StatusCode(code) {
	case statusProtocolError, statusInvalidPayload:
		e.Code = errors.InvalidArgument
	case StatusTooBig:
		e.RetryAfter = errors.Never
	}
	payload := failure.Payload(&e)
	return wire.CloseReason(&payload)
}
