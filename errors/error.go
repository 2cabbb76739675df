package errors

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Never is the wait after which trying again cannot help either. It is the
// largest duration, so code that forgets to ask for it waits for ever.
const Never time.Duration = math.MaxInt64

// An Error is an error with a public half and a private one. Code, Message,
// Details and RetryAfter are written for the client; Err is for the log and
// never leaves the process. The methods of a nil *Error do not panic.
type Error struct {
	Code    Code
	Message string         // one sentence; if empty, the client sees the code alone
	Details map[string]any // more for a program to act on; encoded as a JSON object

	// RetryAfter is how long to wait before trying again: 0 gives no hint, and
	// [Never] says that no wait can help.
	RetryAfter time.Duration

	Err error // the cause
}

// Errorf returns an *Error whose Message is formatted for the client. It does
// not take %w: to keep a cause, which must stay private, set Err.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error describes both halves. It is meant for the log: do not send it.
func (e *Error) Error() string {
	if e == nil {
		return "<nil>"
	}
	text := string(e.Code)
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause, which may be nil.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// Retryable reports whether trying again may succeed. RetryAfter decides where
// it is [Never], otherwise the code; for [Internal] and for codes that are not
// this package's, a positive RetryAfter means yes.
func (e *Error) Retryable() bool {
	if e == nil || e.RetryAfter == Never {
		return false
	}
	if retryable, known := e.Code.retryable(); known {
		return retryable
	}
	return e.RetryAfter > 0
}

// CodeOf returns the code of the first *Error in err's tree. A nil error has
// the code "", a cancelled context [Canceled], an expired one
// [DeadlineExceeded], and everything else [Internal], also a nil *Error in the tree.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	e, ok := errors.AsType[*Error](err)
	switch {
	case ok && e != nil:
		return e.Code
	case ok:
		return Internal
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return DeadlineExceeded
	default:
		return Internal
	}
}

// InvalidField returns an [InvalidArgument] error that names a field of the
// message and says what is wrong with it: InvalidField("text", "must not be
// empty"). It is what a message's Validate method returns.
func InvalidField(field, reason string) *Error {
	return &Error{
		Code:    InvalidArgument,
		Message: field + " " + reason,
		Details: map[string]any{"field": field, "reason": reason},
	}
}
