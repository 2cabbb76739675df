package router

import (
	"fmt"
	"iter"
	"slices"

	"github.com/penstock-go/penstock/errors"
)

// maxTreeErrors bounds how many errors of a tree are visited. An error that wraps itself has
// an infinite tree, in which the functions of the standard library overflow the stack.
const maxTreeErrors = 1000

// errorTree iterates over an error and the errors that it wraps, in the order of [errors.Is].
// It panics above maxTreeErrors.
func errorTree(err error) iter.Seq[error] {
	return func(yield func(error) bool) {
		n := 0
		for next := range wrappedErrors(err, everyError) {
			if n++; n > maxTreeErrors {
				panicTreeTooLarge()
			}
			if !yield(next) {
				return
			}
		}
	}
}

func everyError(error) bool { return true }

func panicTreeTooLarge() {
	panic(fmt.Sprintf("router: an error wraps more than %d errors, perhaps itself", maxTreeErrors))
}

// wrappedErrors is errorTree without a bound: the caller must stop. It visits what an error wraps
// only if unwraps says so.
func wrappedErrors(err error, unwraps func(error) bool) iter.Seq[error] {
	return func(yield func(error) bool) {
		waiting := []error{err}
		for len(waiting) > 0 {
			last := len(waiting) - 1
			next := waiting[last]
			waiting = waiting[:last]
			if next == nil {
				continue
			}
			if !yield(next) {
				return
			}
			if !unwraps(next) {
				continue
			}
			switch wrapper := next.(type) { //nolint:errorlint // it unwraps
			case interface{ Unwrap() error }:
				waiting = append(waiting, wrapper.Unwrap())
			case interface{ Unwrap() []error }:
				for _, wrapped := range slices.Backward(wrapper.Unwrap()) {
					waiting = append(waiting, wrapped)
				}
			}
		}
	}
}

// asType is like [errors.AsType], but bounds the size of the tree.
func asType[E error](err error) (E, bool) {
	if e, ok := err.(E); ok { //nolint:errorlint // the common case, which allocates nothing
		return e, true
	}
	return asTypeInTree[E](err)
}

// asTypeInTree is asType for an error that is not an E itself.
func asTypeInTree[E error](err error) (found E, ok bool) {
	for next := range errorTree(err) {
		if found, ok = isType[E](next); ok {
			return found, true
		}
	}
	return found, false
}

// isType returns err as an E, without the errors that it wraps.
func isType[E error](err error) (found E, ok bool) {
	if e, ok := err.(E); ok { //nolint:errorlint // the caller unwraps
		return e, true
	}
	x, ok := err.(interface{ As(target any) bool })
	return found, ok && x.As(&found)
}

// A publicError is the error of a tree that decides what the client receives: the first
// *LimitExceeded, otherwise the first *errors.Error. Either may be a nil pointer.
type publicError struct {
	limit   *LimitExceeded
	limited bool
	coded   *errors.Error
	isCoded bool // coded is set, and limited is false
}

// findPublicError searches a tree. It panics above maxTreeErrors, unless it has found an
// *errors.Error: a long list of invalid fields is no mistake.
func findPublicError(err error) (found publicError) {
	if limit, ok := err.(*LimitExceeded); ok { //nolint:errorlint // the common case, which allocates nothing
		return publicError{limit: limit, limited: true}
	}
	n := 0
	for next := range wrappedErrors(err, everyError) {
		if n++; n > maxTreeErrors {
			if !found.isCoded {
				panicTreeTooLarge()
			}
			return found
		}
		if limit, ok := isType[*LimitExceeded](next); ok {
			return publicError{limit: limit, limited: true}
		}
		if !found.isCoded {
			found.coded, found.isCoded = isType[*errors.Error](next)
		}
	}
	return found
}

// errorIs is like [errors.Is], but bounds the size of the tree. The target must be comparable.
func errorIs(err, target error) bool {
	for next := range errorTree(err) {
		if next == target { //nolint:errorlint // tree unwraps
			return true
		}
		if x, ok := next.(interface{ Is(target error) bool }); ok && x.Is(target) {
			return true
		}
	}
	return false
}
