package failure

import "fmt"

// A PanicError is a recovered panic of application code. It is router.PanicError.
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // as from runtime/debug.Stack
}

// Error describes the panic without its stack. If Value is neither an error nor a string, the
// text contains only its type, because the error may be logged and the value may be a message.
func (e *PanicError) Error() string {
	if e == nil {
		return "<nil>"
	}
	return "panic: " + PanicText(e.Value)
}

// PanicText returns the text of an error or a string. Any other value may be a message, so it
// returns only the type; likewise for an error whose Error method panics.
func PanicText(value any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T", value)
		}
	}()
	switch v := value.(type) {
	case error:
		return Loggable(v, v.Error())
	case string:
		return v
	default:
		return fmt.Sprintf("a %T", v)
	}
}
