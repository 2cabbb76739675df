package failure

import (
	"fmt"
	"iter"
	"reflect"
	"slices"

	"github.com/penstock-go/penstock/errors"
)

// maxTreeErrors bounds how many errors of a tree are visited. An error that wraps itself has
// an infinite tree, in which the functions of the standard library overflow the stack.
const maxTreeErrors = 1000

// tree iterates over an error and the errors that it wraps, in the order of errors.Is. It panics above maxTreeErrors.
func tree(err error) iter.Seq[error] {
	return func(yield func(error) bool) {
		n := 0
		for next := range wrapped(err, everyError) {
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

// wrapped is tree without a bound: the caller must stop. It visits what an error wraps
// only if unwraps says so.
func wrapped(err error, unwraps func(error) bool) iter.Seq[error] {
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

// AsType is like [errors.AsType], but bounds the size of the tree.
func AsType[E error](err error) (E, bool) {
	if e, ok := err.(E); ok { //nolint:errorlint // the common case, which allocates nothing
		return e, true
	}
	return asTypeInTree[E](err)
}

// asTypeInTree is AsType for an error that is not an E itself.
func asTypeInTree[E error](err error) (found E, ok bool) {
	for next := range tree(err) {
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

// Is is like [errors.Is], but bounds the size of the tree. The target must be comparable.
func Is(err, target error) bool {
	for next := range tree(err) {
		if next == target { //nolint:errorlint // tree unwraps
			return true
		}
		if x, ok := next.(interface{ Is(target error) bool }); ok && x.Is(target) {
			return true
		}
	}
	return false
}

// IsNilPointer reports whether err is a non-nil interface that holds a nil pointer.
func IsNilPointer(err error) bool {
	if err == nil {
		return false
	}
	v := reflect.ValueOf(err)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// A Public is the error of a tree that decides what the client receives: the first exceeded limit,
// otherwise the first *errors.Error. Either may be a nil pointer.
type Public[L error] struct {
	Limit   L
	Limited bool
	Coded   *errors.Error
	IsCoded bool // Coded is set, and Limited is false
}

// FindPublic searches a tree for an L or an *errors.Error. It panics for a tree that is too large,
// unless it has found an *errors.Error: a long list of invalid fields is no mistake.
func FindPublic[L error](err error) (found Public[L]) {
	if limit, ok := err.(L); ok { //nolint:errorlint // the common case, which allocates nothing
		return Public[L]{Limit: limit, Limited: true}
	}
	n := 0
	for next := range wrapped(err, everyError) {
		if n++; n > maxTreeErrors {
			if !found.IsCoded {
				panicTreeTooLarge()
			}
			return found
		}
		if limit, ok := isType[L](next); ok {
			return Public[L]{Limit: limit, Limited: true}
		}
		if !found.IsCoded {
			found.Coded, found.IsCoded = isType[*errors.Error](next)
		}
	}
	return found
}

// Join returns an error that contains both, which may be nil.
func Join(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return errors.Join(a, b)
}
