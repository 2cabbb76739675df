package failure

import "github.com/penstock-go/penstock/errors"

// A ClientAnswer is the private part of an error with which a client has answered a call. Everything else in
// that error is in the words of the client, and may only go back to it: another client would take UNAUTHENTICATED
// or a time to wait for the server's.
type ClientAnswer struct {
	ConnID string // of the client
}

// Error returns a text for the log.
func (a *ClientAnswer) Error() string {
	return "router: the client of the connection " + a.ConnID + " has answered a call with this code"
}

// WithoutAnswer returns an error as clients may see it: another one for the answer of a client. The server works,
// and the client that receives the error is not to blame.
func WithoutAnswer(e *errors.Error) *errors.Error {
	if _, ok := e.Err.(*ClientAnswer); !ok { //nolint:errorlint // a cause that wraps one is that of the application's own error
		return e
	}
	return &errors.Error{Code: errors.FailedPrecondition, Message: "another client has answered with an error", Err: e}
}

// inspectAnswer splits an error with which a client has answered. Other clients receive the public one.
func (i *Inspector[L]) inspectAnswer(e, public *errors.Error, err error) *Failure {
	answer := e.Err.(*ClientAnswer) //nolint:errorlint // as in WithoutAnswer
	cause := string(e.Code) + ": " + answer.Error()
	own := *e
	own.Err = nil
	f, answered := Of(public), i.inspectCoded(&own, err)
	f.setCause(err, cause)
	if own.Code == errors.Internal { // its text has the message
		answered.setCause(err, cause)
	}
	f.answered, f.answeredBy = answered, answer.ConnID
	return f
}

// To returns the failure for the client of a connection, which may receive what it has answered itself.
func (f *Failure) To(connID string) *Failure {
	if f.answered != nil && f.answeredBy == connID {
		return f.answered.At(f.Stage)
	}
	return f
}
