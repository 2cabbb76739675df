package failure

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/penstock-go/penstock/internal/jsonv2"
)

// A quoting error is one whose text may quote what a client has sent: the application may know
// that, and the log must not. Another text stands for it there.
type quoting struct {
	error
	logged string
}

func (e *quoting) Unwrap() error { return e.error }

// Quote returns an error whose text may quote what a client has sent, with the text for the log.
func Quote(err error, logged string) error { return &quoting{err, logged} }

// Loggable returns the text of an error without what it quotes.
func Loggable(err error, text string) string {
	n := 0
	for next := range wrapped(err, isNotQuoting) {
		if n++; n > maxTreeErrors {
			return fmt.Sprintf("a %T", err)
		}
		quoting, ok := next.(*quoting) //nolint:errorlint // the iterator unwraps
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

// isNotQuoting reports whether what an error wraps may have to be replaced. The text of a quoting error
// stands for all that it wraps.
func isNotQuoting(err error) bool {
	_, quoting := err.(*quoting) //nolint:errorlint // the iterator unwraps
	return !quoting
}

// QuoteDecoder returns an error of a decoder, for which the log has only types.
func QuoteDecoder(err error) error {
	if wrong, ok := AsType[*jsonv2.SemanticError](err); ok && wrong.GoType != nil && wrong.Err != nil {
		return &quoting{err, fmt.Sprintf("decode %v: a %T", wrong.GoType, wrong.Err)}
	}
	return &quoting{err, fmt.Sprintf("decode: a %T", err)}
}

// QuoteEncoder returns an error of the JSON encoder. The log does not have the path of the value,
// which may contain keys of maps. What a method of the application has returned is kept.
func QuoteEncoder(err error) error {
	text, cause := "the value cannot be represented in JSON", error(nil)
	if wrong, ok := AsType[*jsonv2.SemanticError](err); ok {
		cause = wrong.Err
		if wrong.GoType != nil {
			text = fmt.Sprintf("%v cannot be represented in JSON", wrong.GoType)
		}
	}
	if syntax, ok := AsType[*jsonv2.SyntacticError](err); ok {
		cause = syntax.Err
	}
	if cause != nil {
		text += ": " + cause.Error()
	}
	return &quoting{err, text}
}

// Shorten returns text if it has at most limit bytes, and otherwise a prefix of whole characters with an
// ellipsis.
func Shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	text = text[:limit]
	for range utf8.UTFMax - 1 {
		if r, size := utf8.DecodeLastRuneInString(text); r != utf8.RuneError || size != 1 {
			break
		}
		text = text[:len(text)-1]
	}
	return text + "…"
}
