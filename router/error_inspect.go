package router

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wire"
)

// A inspectedError is what a client may see of an error, and what the log says about the
// rest. It is plain data: nothing that uses it calls the error's methods.
type inspectedError struct {
	payload    wire.ErrorPayload
	retryAfter time.Duration

	limited bool // the error is a limit, and the fields below do not count
	limit   LimitExceeded

	cause  error  // for OnError; nil if the client sees all of the error
	text   string // of the cause
	stack  []byte // of a panic
	exited bool   // the goroutine ends
}

// inspect extracts the public half of an error. It calls the error's methods, so it must be
// called by guard, unless the error is one of the router's own.
func inspect(err error, where string) *inspectedError {
	if isNilPointer(err) {
		return internalError(fmt.Errorf("router: the error of %s is a nil %T; return nil itself", where, err))
	}
	limit, ok := asType[*LimitExceeded](err)
	switch {
	case ok && limit != nil:
		return limitError(*limit)
	case ok:
		return nilPointerError(err, limit, where)
	}
	e, ok := asType[*errors.Error](err)
	switch {
	case ok && e != nil:
		return inspectCoded(e, err)
	case ok:
		return nilPointerError(err, e, where)
	}
	code := errors.Internal
	private := false
	switch {
	case errorIs(err, context.Canceled):
		code = errors.Canceled
	case errorIs(err, context.DeadlineExceeded):
		code = errors.DeadlineExceeded
		private = err != context.DeadlineExceeded //nolint:errorlint // a wrapped one says more
	default:
		private = true
	}
	p := &inspectedError{payload: publicPayload(&errors.Error{Code: code, Message: bareMessage(code)})}
	if private {
		p.setPrivate(err, err.Error())
	}
	return p
}

// inspectCoded is about an error with an *errors.Error in its tree.
func inspectCoded(e *errors.Error, err error) *inspectedError {
	p := &inspectedError{payload: publicPayload(e), retryAfter: e.RetryAfter}
	switch {
	case e.Err != nil:
		_ = err.Error() // OnError may call it
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

// encodeDetails must be called by guard, like inspect.
func encodeDetails(details map[string]any) (rawJSON, error) {
	var text byteWriter
	if err := marshal(&text, details); err != nil {
		return nil, fmt.Errorf("router: encode the details of an error: %w", err)
	}
	return rawJSON(text), nil
}

// keep keeps the private half of an error. Its text leaves out what was written for the
// client, who may find its own words there.
func (p *inspectedError) setPrivate(cause error, text string) {
	p.cause, p.text = cause, text
	if panicked, ok := asType[*PanicError](cause); ok && panicked != nil {
		p.stack = panicked.Stack
	}
}

// nilPointerError is about a nil pointer, of which nothing can be told to the client.
func nilPointerError(err, pointer error, where string) *inspectedError {
	return internalError(fmt.Errorf("router: the error of %s holds a nil %T: %s", where, pointer, err.Error()))
}

// internalError is about an error of the router's own.
func internalError(cause error) *inspectedError {
	e := errors.Error{Code: errors.Internal, Message: bareMessage(errors.Internal)}
	return &inspectedError{payload: publicPayload(&e), cause: cause, text: cause.Error()}
}

func limitError(l LimitExceeded) *inspectedError {
	return &inspectedError{payload: l.payload(), retryAfter: l.RetryAfter, limited: true, limit: l}
}

func isNilPointer(err error) bool {
	if err == nil {
		return false
	}
	v := reflect.ValueOf(err)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
