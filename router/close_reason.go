package router

import (
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/wire"
)

// closeReason returns the reason of the close frame for an exceeded limit.
func (l *LimitExceeded) closeReason() string {
	payload := l.payload()
	return wire.CloseReason(&payload)
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
