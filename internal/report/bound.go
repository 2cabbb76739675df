package report

import (
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/penstock-go/penstock/internal/failure"
)

// Bounds of what one line contains. Errors and panics of the application may repeat what a client or a
// server has sent.
const (
	maxErrorBytes = 512
	maxStackBytes = 8192
	maxOtherBytes = 128
)

// Bound bounds the texts of attributes, in place, and makes them printable.
func Bound(attrs ...slog.Attr) []slog.Attr {
	for i, attr := range attrs {
		if attr.Value.Kind() != slog.KindString {
			continue
		}
		limit := maxOtherBytes
		switch attr.Key {
		case "error", "panic", "remedy":
			limit = maxErrorBytes
		case "stack":
			limit = maxStackBytes
		}
		attrs[i].Value = slog.StringValue(printable(failure.Shorten(attr.Value.String(), limit)))
	}
	return attrs
}

// printable replaces control characters, which handlers write as up to six bytes or not at all, and
// invalid UTF-8 with U+FFFD.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return utf8.RuneError
		}
		return r
	}, text)
}
