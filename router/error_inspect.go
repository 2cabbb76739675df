package router

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wire"
)

// An inspectedError is an error split into what a client may see and what is reported on the
// server. It is plain data, so using it calls no methods of application code.
type inspectedError struct {
	payload    wire.ErrorPayload
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
	if isNilPointer(err) {
		return internalError(fmt.Errorf("router: the error of %s is a nil %T; return nil itself", where, err))
	}
	found := findPublicError(err)
	switch {
	case found.limited && found.limit != nil:
		return limitError(*found.limit)
	case found.limited:
		return nilPointerError(err, found.limit, where)
	case found.isCoded && found.coded != nil:
		return inspectCoded(joinFieldErrors(found.coded, err), err)
	case found.isCoded:
		return nilPointerError(err, found.coded, where)
	}
	code := errors.Internal
	private := false
	_, closed := asType[*closedError](err)
	switch {
	case closed, errorIs(err, context.Canceled):
		code = errors.Canceled
	case errorIs(err, context.DeadlineExceeded):
		code = errors.DeadlineExceeded
		private = err != context.DeadlineExceeded //nolint:errorlint // a wrapping error has text to report
	default:
		private = true
	}
	p := &inspectedError{payload: publicPayload(&errors.Error{Code: code, Message: bareMessage(code)})}
	if private {
		p.setPrivate(err, err.Error())
	}
	return p
}

// inspectCoded splits an error whose tree contains an *errors.Error.
func inspectCoded(e *errors.Error, err error) *inspectedError {
	p := &inspectedError{payload: publicPayload(e), retryAfter: e.RetryAfter}
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
func encodeDetails(details map[string]any) (rawJSON, error) {
	// The encoder bounds the depth of nesting, and so do decoders of clients. The details are
	// sent inside a payload inside an envelope, so they are encoded below as many levels here,
	// and one more.
	var text byteWriter
	if err := marshal(&text, [1][1][1]map[string]any{{{details}}}); err != nil {
		return nil, fmt.Errorf("router: encode the details of an error: %w", err)
	}
	return rawJSON(text[len("[[[") : len(text)-len("]]]")]), nil
}

// setPrivate sets the private part of an error. The text omits the message for the client,
// because that may repeat what the client has sent, which must not be logged; so may a quotingError.
func (p *inspectedError) setPrivate(cause error, text string) {
	p.cause, p.text = cause, loggable(cause, text)
	if panicked, ok := asType[*PanicError](cause); ok && panicked != nil {
		p.stack = panicked.Stack
	}
}

// nilPointerError reports an error tree that contains a nil pointer. The client receives
// INTERNAL.
func nilPointerError(err, pointer error, where string) *inspectedError {
	return internalError(fmt.Errorf("router: the error of %s holds a nil %T: %s", where, pointer, loggable(err, err.Error())))
}

// internalError returns the code INTERNAL for the client, with the cause on the server only.
func internalError(cause error) *inspectedError {
	e := errors.Error{Code: errors.Internal, Message: bareMessage(errors.Internal)}
	return &inspectedError{payload: publicPayload(&e), cause: cause, text: loggable(cause, cause.Error())}
}

// limitError returns an exceeded limit.
func limitError(l LimitExceeded) *inspectedError {
	return &inspectedError{payload: l.payload(), retryAfter: l.RetryAfter, limited: true, limit: l}
}

// isNilPointer reports whether err is a non-nil interface that holds a nil pointer.
func isNilPointer(err error) bool {
	if err == nil {
		return false
	}
	v := reflect.ValueOf(err)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
