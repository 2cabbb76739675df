package failure

import (
	"fmt"

	"github.com/penstock-go/penstock/errors"
)

// NewPanic returns the error for a recovered panic.
func NewPanic(value any, stack []byte) *errors.PanicError {
	return &errors.PanicError{Value: value, Stack: stack, Text: PanicText(value)}
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
