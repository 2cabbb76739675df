package router

import (
	"fmt"
	"iter"
	"slices"
)

// maxTreeErrors bounds how many errors of a tree are visited. An error that wraps itself has
// an infinite tree, in which the functions of the standard library overflow the stack.
const maxTreeErrors = 1000

// errorTree iterates over an error and the errors that it wraps, in the order of [errors.Is].
// It panics above maxTreeErrors.
func errorTree(err error) iter.Seq[error] {
	return func(yield func(error) bool) {
		waiting := []error{err}
		for n := 0; len(waiting) > 0; n++ {
			if n == maxTreeErrors {
				panic(fmt.Sprintf("router: an error wraps more than %d errors, perhaps itself", maxTreeErrors))
			}
			last := len(waiting) - 1
			next := waiting[last]
			waiting = waiting[:last]
			if next == nil {
				continue
			}
			if !yield(next) {
				return
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
		if e, ok := next.(E); ok { //nolint:errorlint // tree unwraps
			return e, true
		}
		if x, ok := next.(interface{ As(target any) bool }); ok && x.As(&found) {
			return found, true
		}
	}
	return found, false
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
