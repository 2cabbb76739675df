package router

import (
	"fmt"
	"strings"

	"github.com/penstock-go/penstock/internal/jsonv2"
)

// A quotingError is an error whose text may quote what a client has sent: the application may know
// that, and the log must not. Another text stands for it there.
type quotingError struct {
	error
	logged string
}

func (e *quotingError) Unwrap() error { return e.error }

// loggable returns the text of an error without what it quotes. It calls methods of application code.
func loggable(err error, text string) string {
	n := 0
	for next := range wrappedErrors(err, isNotQuoting) {
		if n++; n > maxTreeErrors {
			return fmt.Sprintf("a %T", err)
		}
		quoting, ok := next.(*quotingError) //nolint:errorlint // the iterator unwraps
		if !ok {
			continue
		}
		quote := quoting.Error()
		if quote == "" {
			continue
		}
		if !strings.Contains(text, quote) { // the application may have changed the text
			return fmt.Sprintf("a %T: %s", err, quoting.logged)
		}
		text = strings.ReplaceAll(text, quote, quoting.logged)
	}
	return text
}

// isNotQuoting reports whether what an error wraps may have to be replaced. The text of a quotingError
// stands for all that it wraps.
func isNotQuoting(err error) bool {
	_, quoting := err.(*quotingError) //nolint:errorlint // the iterator unwraps
	return !quoting
}

// quotingDecoder returns an error of a decoder, for which the log has only types.
func quotingDecoder(err error) error {
	if wrong, ok := asType[*jsonv2.SemanticError](err); ok && wrong.GoType != nil && wrong.Err != nil {
		return &quotingError{err, fmt.Sprintf("decode %v: a %T", wrong.GoType, wrong.Err)}
	}
	return &quotingError{err, fmt.Sprintf("decode: a %T", err)}
}

// quotingEncoder returns an error of the JSON encoder. The log does not have the path of the value,
// which may contain keys of maps. What a method of the application has returned is kept.
func quotingEncoder(err error) error {
	text, cause := "the value cannot be represented in JSON", error(nil)
	if wrong, ok := asType[*jsonv2.SemanticError](err); ok {
		cause = wrong.Err
		if wrong.GoType != nil {
			text = fmt.Sprintf("%v cannot be represented in JSON", wrong.GoType)
		}
	}
	if syntax, ok := asType[*jsonv2.SyntacticError](err); ok {
		cause = syntax.Err
	}
	if cause != nil {
		text += ": " + cause.Error()
	}
	return &quotingError{err, text}
}
