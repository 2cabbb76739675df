package jsonplan

import (
	"reflect"
	"sync"
	"unsafe"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
)

//nolint:gochecknoglobals // never changed
var (
	decodeOptions = jsonv2.JoinOptions(jsonv2.AllowInvalidUTF8(true))
	strictOptions = jsonv2.JoinOptions(decodeOptions, jsonv2.RejectUnknownMembers(true))
	encodeOptions = jsonv2.JoinOptions(jsonv2.AllowInvalidUTF8(true), jsonv2.Deterministic(true))
)

// errLibrary is returned for values that a plan leaves to the library. It says nothing about whether they
// are valid.
var errLibrary = errors.New("jsonplan: left to the JSON library")

// maxNesting is how many objects and arrays are open at once in what a plan reads and writes. The library
// handles 10,000, and finds values that contain themselves.
const maxNesting = 1000

// libraryUnmarshal decodes text into what v points to.
func libraryUnmarshal(text []byte, v any, strict bool) error {
	if strict {
		return jsonv2.Unmarshal(text, v, strictOptions)
	}
	return jsonv2.Unmarshal(text, v, decodeOptions)
}

// libraryAppend appends the JSON of v.
func libraryAppend(b []byte, v any) ([]byte, error) {
	w := writers.Get().(*writer)
	w.b = b
	err := jsonv2.MarshalWrite(w, v, encodeOptions)
	b, w.b = w.b, nil
	writers.Put(w)
	return b, err
}

var writers = sync.Pool{New: func() any { return new(writer) }}

// A writer appends what is written.
type writer struct{ b []byte }

func (w *writer) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// readLibrary reads a value of type t into p.
func (s *scanner) readLibrary(t reflect.Type, p unsafe.Pointer) {
	s.peek()
	end := endOfValue(s.text[s.at:], maxNesting-s.depth)
	if end <= 0 {
		s.fail()
		return
	}
	text := s.text[s.at : s.at+end : s.at+end]
	s.at += end
	if libraryUnmarshal(text, reflect.NewAt(t, p).Interface(), s.strict) != nil {
		s.fail()
	}
}

// appendLibrary appends the JSON of a value of type t at p.
func appendLibrary(b []byte, t reflect.Type, p unsafe.Pointer, depth int) ([]byte, error) {
	begin := len(b)
	b, err := libraryAppend(b, reflect.NewAt(t, p).Interface())
	if err != nil {
		return b, errLibrary
	}
	// The library does not see the levels around this value.
	if text := b[begin:]; len(text) > maxNesting-depth && endOfValue(text, maxNesting-depth) < 0 {
		return b, errLibrary
	}
	return b, nil
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
		if i += Plain(text[i:]); i >= len(text) {
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
