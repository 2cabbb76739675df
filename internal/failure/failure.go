package failure

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/protocol"
)

// A Failure is an error split into what a client may see and what is reported on the server. It is
// plain data, so using it calls no methods of application code.
type Failure struct {
	Payload    protocol.ErrorPayload
	RetryAfter time.Duration

	Limit error // the exceeded limit, and then the next three fields are unset; otherwise nil

	Cause error  // for the application; nil if the client sees the whole error
	Text  string // of Cause, for the log
	Stack []byte // if Cause is a panic

	Stage string // of the pipeline, or the function of the application; "" if the router itself has failed

	answered   *Failure // for the client of the connection answeredBy, if a client has answered with the error
	answeredBy string
}

// At sets the stage.
func (f *Failure) At(stage string) *Failure {
	f.Stage = stage
	return f
}

// Of returns the failure of an error without a cause and without details: one of the router's own,
// whose methods need no guard.
func Of(e *errors.Error) *Failure { return &Failure{Payload: Payload(e), RetryAfter: e.RetryAfter} }

// Internal returns the code INTERNAL for the client, with the cause on the server only.
func Internal(cause error) *Failure {
	f := Of(&errors.Error{Code: errors.Internal, Message: Message(errors.Internal)})
	f.Cause, f.Text = cause, Loggable(cause, cause.Error())
	return f
}

// errExited reports application code that calls runtime.Goexit.
var errExited = errors.New("router: runtime.Goexit was called, as FailNow of package testing does")

// Exited returns the failure of application code that has not returned.
func Exited(stage string) *Failure { return Internal(errExited).At(stage) }

// BlamesClient reports whether the code says that the client's credentials are at fault.
func (f *Failure) BlamesClient() bool {
	return f.Payload.Code == errors.Unauthenticated || f.Payload.Code == errors.PermissionDenied
}

// Describe returns the text for the log, or the code if the client sees the whole error.
func (f *Failure) Describe() string {
	if f.Text != "" {
		return f.Text
	}
	return string(f.Payload.Code)
}

// setCause sets the private part of an error. The text omits the message for the client, because that
// may repeat what the client has sent, which must not be logged; so may a quoting error.
func (f *Failure) setCause(cause error, text string) {
	f.Cause, f.Text = cause, Loggable(cause, text)
	if panicked, ok := AsType[*errors.PanicError](cause); ok && panicked != nil {
		f.Stack = panicked.Stack
	}
}

// A connectionClosed marks the end of a connection; see Closed.
type connectionClosed struct{ error }

func (e *connectionClosed) Unwrap() error { return e.error }

// Closed returns the cause of contexts that end with their connection, so that the error of such a
// context is distinguished from an equal one of the application.
func Closed(err error) error { return &connectionClosed{err} }

// An Inspector splits the errors of the application. L is the error type of limits; the functions are
// what its owner knows.
type Inspector[L error] struct {
	Limit   func(L) *Failure                        // splits an exceeded limit
	Details func(details any) (jsonv2.Value, error) // encodes details for the client; nil without members
}

// Inspect splits an error. It calls the error's methods, so it must be called by Guard, unless the
// error cannot be one of the application. Where names the code that returned the error.
func (i *Inspector[L]) Inspect(err error, where string) *Failure {
	if IsNilPointer(err) {
		return Internal(fmt.Errorf("router: the error of %s is a nil %T; return nil itself", where, err)).At(where)
	}
	found := FindPublic[L](err)
	switch {
	case found.Limited && IsNilPointer(found.Limit):
		return nilPointer(err, found.Limit, where)
	case found.Limited:
		return i.Limit(found.Limit).At(where)
	case found.IsCoded && found.Coded == nil:
		return nilPointer(err, found.Coded, where)
	case found.IsCoded:
		return i.inspectCoded(JoinFields(found.Coded, err), err).At(where)
	}
	code := errors.Internal
	private := true
	_, closed := AsType[*connectionClosed](err)
	switch {
	case closed, Is(err, context.Canceled):
		code, private = errors.Canceled, false
	case Is(err, context.DeadlineExceeded):
		code = errors.DeadlineExceeded
		private = err != context.DeadlineExceeded //nolint:errorlint // a wrapping error has text to report
	}
	f := Of(&errors.Error{Code: code, Message: Message(code)}).At(where)
	if private {
		f.setCause(err, err.Error())
	}
	return f
}

// inspectCoded splits an error whose tree contains an *errors.Error.
func (i *Inspector[L]) inspectCoded(e *errors.Error, err error) *Failure {
	if public := WithoutAnswer(e); public != e {
		return i.inspectAnswer(e, public, err)
	}
	f := Of(e)
	switch {
	case e.Err != nil:
		_ = err.Error() // a panic must occur here and not where the cause is reported
		f.setCause(err, string(e.Code)+": "+e.Err.Error())
	case e.Code == errors.Internal:
		f.setCause(err, err.Error())
	}
	if e.Details != nil {
		details, bad := i.Details(e.Details)
		if bad != nil && f.Cause == nil {
			f.setCause(bad, bad.Error())
		}
		if details != nil {
			f.Payload.Details = details
		}
	}
	return f
}

// nilPointer reports an error tree that contains a nil pointer. The client receives INTERNAL.
func nilPointer(err, pointer error, where string) *Failure {
	return Internal(fmt.Errorf("router: the error of %s holds a nil %T: %s", where, pointer, Loggable(err, err.Error()))).At(where)
}
