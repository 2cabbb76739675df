package router

import (
	"context"

	"github.com/penstock-go/penstock/errors"
)

// A Failure is an error that a client does not see in full.
type Failure struct {
	Conn *Conn  // nil if there was no connection yet
	Type string // of the message, as an [IngressContext] has it; "" if there was none
	Err  error
}

// A PanicError is a panic that was turned into an error.
type PanicError struct {
	Value any
	Stack []byte
}

// Error describes the panic without its stack. Of a Value that is neither an error nor a
// string, it tells only the type, for the error may be logged and the value be a message.
func (e *PanicError) Error() string { return "panic: " + panicText(e.Value) }

// private reports whether err has a part that the client is not told.
func private(err error) bool {
	if e, ok := errors.AsType[*errors.Error](err); ok {
		return e.Err != nil || e.Code == errors.Internal
	}
	return !errors.Is(err, context.Canceled) && err != context.DeadlineExceeded //nolint:errorlint // a wrapped one says more
}

func (r *Router) fail(c *Conn, typ string, err error) {
	if !private(err) {
		return
	}
	failure := Failure{Conn: c, Type: typ, Err: err}
	defer r.recoverHook("OnError")
	if r.opts.OnError != nil {
		r.opts.OnError(failure)
		return
	}
	r.logFailure(failure)
}

// recoverHook keeps a hook's panic from whoever called the hook.
func (r *Router) recoverHook(name string) {
	if v := recover(); v != nil {
		r.observe(Event{Kind: EventPanicked, Reason: name})
		r.logHookPanic(name, v)
	}
}
