package router

import (
	"fmt"
	"iter"
	"slices"
)

// maxTreeErrors bounds how many errors of a tree are looked at. An error that wraps itself has a
// tree without end, in which the standard functions overflow the stack.
const maxTreeErrors = 1000

// tree iterates over an error and what it wraps, in the order of [errors.Is].
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

// find is [errors.AsType] for a tree of any shape.
func asType[E error](err error) (E, bool) {
	if e, ok := err.(E); ok { //nolint:errorlint // the common case, which allocates nothing
		return e, true
	}
	return asTypeInTree[E](err)
}

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

// is is [errors.Is] for a tree of any shape. The target must be comparable.
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
