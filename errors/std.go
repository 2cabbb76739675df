package errors

import "errors"

// ErrUnsupported and the functions below are those of the standard package errors.
var (
	ErrUnsupported = errors.ErrUnsupported
)

func As(err error, target any) bool       { return errors.As(err, target) }
func AsType[E error](err error) (E, bool) { return errors.AsType[E](err) }
func Is(err, target error) bool           { return errors.Is(err, target) }
func Join(errs ...error) error            { return errors.Join(errs...) }
func New(text string) error               { return errors.New(text) }
func Unwrap(err error) error              { return errors.Unwrap(err) }
