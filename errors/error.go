package errors

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Never is the RetryAfter of an error for which retrying cannot help. It is the
// largest duration, so code that does not check for it waits forever.
const Never time.Duration = math.MaxInt64

// An Error has a public part, which clients receive (Code, Message, Details and
// RetryAfter), and a private one, which is only logged (Err). The methods of a
// nil *Error do not panic.
type Error struct {
	Code    Code
	Message string // one sentence; if empty, the client receives only the code

	// Details is data for programs: a struct or a map, encoded as a JSON object. Clients
	// know its type if the route declares it. An error that was received has a
	// map[string]any: [DetailsOf] returns it as a struct.
	Details any

	// RetryAfter is how long the client should wait before it retries. The zero
	// value gives no hint; [Never] means that retrying cannot help.
	RetryAfter time.Duration

	Err error // the cause
}

// Errorf returns an *Error with a formatted Message, which clients receive. It
// does not support %w, because a cause is private: set Err instead.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error returns a text with the code, the message and the cause. It contains
// private information: log it, but do not send it to clients.
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

// Unwrap returns Err, which may be nil.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// Retryable reports whether sending the same message again may succeed. It is
// false if RetryAfter is [Never]. Otherwise it depends on the code; for
// [Internal] and for codes of applications, it is true if RetryAfter is positive.
func (e *Error) Retryable() bool {
	if e == nil || e.RetryAfter == Never {
		return false
	}
	if retryable, known := e.Code.retryable(); known {
		return retryable
	}
	return e.RetryAfter > 0
}

// CodeOf returns the code of the first *Error in err's tree. It returns "" for a
// nil error, [Canceled] for a canceled context, [DeadlineExceeded] for an expired
// one, and [Internal] for all other errors, including a nil *Error in the tree.
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

// InvalidField returns an [InvalidArgument] error for a field of a message, as in
// InvalidField("text", "must not be empty"). The Validate method of a message can
// return it, or several of them joined by [Join]: the client then receives all of them, at most
// 32, as FieldDetails.Fields.
func InvalidField(field, reason string) *Error {
	return &Error{
		Code:    InvalidArgument,
		Message: field + " " + reason,
		Details: FieldDetails{Field: field, Reason: reason},
	}
}
