package router

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/protocol"
)

// An inspectedError is an error split into what a client may see and what is reported on the
// server. It is plain data, so using it calls no methods of application code.
type inspectedError struct {
	payload    protocol.ErrorPayload
	retryAfter time.Duration

	limited bool // the error is a limit; the fields after limit are unset
	limit   LimitExceeded

	cause  error  // for OnError; nil if the client sees the whole error
	text   string // the text of cause
	stack  []byte // if cause is a panic
	exited bool   // runtime.Goexit was called, so the goroutine ends

	stage string // of the pipeline, for Rejection.Reason; "" if no message is involved
}

// at sets the stage that rejects a message.
func (p *inspectedError) at(stage string) *inspectedError {
	p.stage = stage
	return p
}

// inspect splits an error. It calls the error's methods, so it must be called by guard, unless
// the error is one of the router's own. Where names the code that returned the error.
func inspect(err error, where string) *inspectedError {
	if failure.IsNilPointer(err) {
		return internalError(fmt.Errorf("router: the error of %s is a nil %T; return nil itself", where, err))
	}
	found := failure.FindPublic[*LimitExceeded](err)
	switch {
	case found.Limited && found.Limit != nil:
		return limitError(*found.Limit)
	case found.Limited:
		return nilPointerError(err, found.Limit, where)
	case found.IsCoded && found.Coded != nil:
		return inspectCoded(failure.JoinFields(found.Coded, err), err)
	case found.IsCoded:
		return nilPointerError(err, found.Coded, where)
	}
	code := errors.Internal
	private := false
	_, closed := failure.AsType[*closedError](err)
	switch {
	case closed, failure.Is(err, context.Canceled):
		code = errors.Canceled
	case failure.Is(err, context.DeadlineExceeded):
		code = errors.DeadlineExceeded
		private = err != context.DeadlineExceeded //nolint:errorlint // a wrapping error has text to report
	default:
		private = true
	}
	p := &inspectedError{payload: failure.Payload(&errors.Error{Code: code, Message: failure.Message(code)})}
	if private {
		p.setPrivate(err, err.Error())
	}
	return p
}

// inspectCoded splits an error whose tree contains an *errors.Error.
func inspectCoded(e *errors.Error, err error) *inspectedError {
	p := &inspectedError{payload: failure.Payload(e), retryAfter: e.RetryAfter}
	switch {
	case e.Err != nil:
		_ = err.Error() // a panic must occur here and not in OnError
		p.setPrivate(err, string(e.Code)+": "+e.Err.Error())
	case e.Code == errors.Internal:
		p.setPrivate(err, err.Error())
	}
	if len(e.Details) > 0 {
		details, bad := encodeDetails(e.Details)
		if bad == nil {
			p.payload.Details = details
		} else if p.cause == nil {
			p.setPrivate(bad, bad.Error())
		}
	}
	return p
}

// encodeDetails encodes details for the client. It must be called by guard, like inspect.
func encodeDetails(details map[string]any) (jsonv2.Value, error) {
	// The encoder bounds the depth of nesting, and so do decoders of clients. The details are
	// sent inside a payload inside an envelope, so they are encoded below as many levels here,
	// and one more.
	text, err := envelope.MarshalJSON([1][1][1]map[string]any{{{details}}})
	if err != nil {
		return nil, fmt.Errorf("router: encode the details of an error: %w", err)
	}
	return jsonv2.Value(text[len("[[[") : len(text)-len("]]]")]), nil
}

// setPrivate sets the private part of an error. The text omits the message for the client,
// because that may repeat what the client has sent, which must not be logged; so may a quotingError.
func (p *inspectedError) setPrivate(cause error, text string) {
	p.cause, p.text = cause, failure.Loggable(cause, text)
	if panicked, ok := failure.AsType[*PanicError](cause); ok && panicked != nil {
		p.stack = panicked.Stack
	}
}

// nilPointerError reports an error tree that contains a nil pointer. The client receives
// INTERNAL.
func nilPointerError(err, pointer error, where string) *inspectedError {
	return internalError(fmt.Errorf("router: the error of %s holds a nil %T: %s", where, pointer, failure.Loggable(err, err.Error())))
}

// internalError returns the code INTERNAL for the client, with the cause on the server only.
func internalError(cause error) *inspectedError {
	e := errors.Error{Code: errors.Internal, Message: failure.Message(errors.Internal)}
	return &inspectedError{payload: failure.Payload(&e), cause: cause, text: failure.Loggable(cause, cause.Error())}
}

// limitError returns an exceeded limit.
func limitError(l LimitExceeded) *inspectedError {
	return &inspectedError{payload: l.payload(), retryAfter: l.RetryAfter, limited: true, limit: l}
}
