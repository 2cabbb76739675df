package errors

// A PanicError is a recovered panic of application code. The router returns it as the private part of an error with
// the code INTERNAL.
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // as from runtime/debug.Stack

	// Text describes Value for a log. If that is neither an error nor a string, it is only its type, because it may be a
	// message.
	Text string
}

// Error describes the panic without its stack.
func (e *PanicError) Error() string {
	if e == nil {
		return "<nil>"
	}
	return "panic: " + e.Text
}
