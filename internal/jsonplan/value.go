package jsonplan

import (
	"github.com/penstock-go/penstock/internal/jsonv2"
)

// The options of package router. Unknown members are left to the router, because whether it
// rejects them is up to the application.
//
//nolint:gochecknoglobals // never changed
var (
	decodeOptions = jsonv2.JoinOptions(jsonv2.AllowInvalidUTF8(true), jsonv2.RejectUnknownMembers(true))
	encodeOptions = jsonv2.JoinOptions(jsonv2.AllowInvalidUTF8(true), jsonv2.Deterministic(true))
)

// value reads any value with the JSON library into what v points to.
func (s *scanner) value(v any) {
	s.peek()
	begin := s.at
	s.skip()
	if s.failed {
		return
	}
	if err := jsonv2.Unmarshal(s.text[begin:s.at], v, decodeOptions); err != nil {
		s.fail()
	}
}

// skip moves to the end of a value. It does not check more of the syntax than it needs to find the
// end.
func (s *scanner) skip() {
	end := endOfValue(s.text[s.at:], maxNesting-s.depth)
	if end <= 0 {
		s.fail()
		return
	}
	s.at += end
}

// endOfValue returns the length of the value with which a text begins, or -1 if it has more than
// max levels or does not end.
func endOfValue(text []byte, maxLevels int) int {
	levels := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			if levels++; levels > maxLevels {
				return -1
			}
		case '}', ']':
			if levels--; levels < 0 {
				return i
			}
			if levels == 0 {
				return i + 1
			}
		case '"':
			n := endOfString(text[i+1:])
			if n < 0 {
				return -1
			}
			if i += n; levels == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\n', '\r':
			if levels == 0 {
				return i
			}
		}
	}
	if levels > 0 {
		return -1
	}
	return len(text)
}

// endOfString returns the length of what is left of a string, with the quote, or -1.
func endOfString(text []byte) int {
	for i := 0; i < len(text); i++ {
		if i += plain(text[i:]); i >= len(text) {
			break
		}
		switch text[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return -1
}

// appendValue appends the JSON of what v points to, which the library encodes. It returns
// errLeft if the library returns an error.
func appendValue(b []byte, v any) ([]byte, error) {
	w := writer{b}
	if err := jsonv2.MarshalWrite(&w, v, encodeOptions); err != nil {
		return b, errLeft
	}
	// The library encodes at most 10,000 levels, of which it does not see those around this value.
	if text := w.b[len(b):]; len(text) > maxNesting && endOfValue(text, maxNesting) < 0 {
		return b, errLeft
	}
	return w.b, nil
}

// A writer appends what is written.
type writer struct{ b []byte }

func (w *writer) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}
