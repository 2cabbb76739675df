package envelope

import (
	"fmt"
	"runtime/debug"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
)

// recoverAsError turns a panic in the encoding methods of a value into an error. It must be
// deferred.
func recoverAsError(err *error) {
	if v := recover(); v != nil {
		*err = failure.NewPanic(v, debug.Stack())
	}
}

// recoverMethod is like recoverAsError, for a method of a message, which may be a nil pointer.
func recoverMethod(err *error, method string, m Message) {
	if v := recover(); v != nil {
		p := failure.NewPanic(v, debug.Stack())
		*err = &errors.Error{Code: errors.Internal, Err: fmt.Errorf("router: encode %T: %s: %w", m, method, p)}
	}
}
