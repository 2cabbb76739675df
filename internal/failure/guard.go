package failure

import (
	"fmt"
	"runtime/debug"
)

// Guard calls f, and returns the failure of its error or of its panic, or nil. Where names f. Errors of
// the application are inspected only here, because their methods may panic, too. Guard does not return
// if f calls runtime.Goexit: package executor sees that.
func (i *Inspector[L]) Guard(where string, f func() error) (failure *Failure, panicked bool) {
	var err error
	defer func() {
		if v := recover(); v != nil {
			failure, panicked = ofPanic(v, debug.Stack(), err, where), true
		}
	}()
	if err = f(); err != nil {
		failure = i.Inspect(err, where)
	}
	return failure, false
}

// ofPanic returns the failure of a panic of a function or, if that has returned an error, of a method
// of this error.
func ofPanic(value any, stack []byte, err error, where string) *Failure {
	var cause error = NewPanic(value, stack)
	if err != nil {
		cause = fmt.Errorf("router: the error of %s, a %T, cannot be inspected: %w", where, err, cause)
	}
	f := Internal(cause).At(where)
	f.Stack = stack
	return f
}
