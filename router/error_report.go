package router

// A ErrorReport is an error that a client does not see in full.
type ErrorReport struct {
	Conn *Conn  // nil if there was no connection yet
	Type string // of the message, as an [IngressContext] has it; "" if there was none
	Err  error
}

// A PanicError is a panic that was turned into an error.
type PanicError struct {
	Value any
	Stack []byte
}

// Error describes the panic without its stack. If Value is neither an error nor a string,
// the text holds only its type, for the error may be logged and the value be a message.
func (e *PanicError) Error() string {
	if e == nil {
		return "<nil>"
	}
	return "panic: " + panicText(e.Value)
}

// fail reports the private half of an error, if there is one.
func (r *Router) reportError(c *Conn, typ string, failed *inspectedError) {
	switch {
	case failed.cause == nil:
	case r.opts.OnError != nil:
		r.hook("OnError", func() { r.opts.OnError(ErrorReport{Conn: c, Type: typ, Err: failed.cause}) })
	default:
		r.logError(c, typ, failed)
	}
}
