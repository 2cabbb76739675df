package cbor

import (
	"fmt"
	"io"
	"strings"

	"github.com/fxamacker/cbor/v2"

	"github.com/penstock-go/penstock/errors"
)

// invalid returns the error for the client, which does not contain the library's text: that would
// name the server's types.
func invalid(err error) error {
	if wrong, ok := errors.AsType[*cbor.UnmarshalTypeError](err); ok {
		return errors.InvalidField(field(wrong), wrongType(wrong))
	}
	return errors.InvalidField("payload", reason(err))
}

// field returns the name of the field that has the wrong type: what follows the last point of
// StructFieldName, which begins with the Go type.
func field(wrong *cbor.UnmarshalTypeError) string {
	if i := strings.LastIndexByte(wrong.StructFieldName, '.'); i >= 0 {
		return wrong.StructFieldName[i+1:]
	}
	return "payload"
}

// wrongType says what a field must be, if its Go type has a plain name, and what it is.
func wrongType(wrong *cbor.UnmarshalTypeError) string {
	if must := expected(wrong.GoType); must != "" {
		return fmt.Sprintf("must be %s, not %s", must, actual(wrong.CBORType))
	}
	return "must not be " + actual(wrong.CBORType)
}

// expected describes the CBOR that decodes into a Go type, or returns "" for a named type.
func expected(goType string) string {
	for _, known := range []struct{ prefix, text string }{
		{"interface", ""},
		{"int", "an integer in range"},
		{"uint", "an integer in range"},
		{"float", "a number"},
		{"string", "a text string"},
		{"bool", "a boolean"},
		{"[]uint8", "a byte string"},
		{"[", "an array"},
		{"map[", "a map"},
	} {
		if strings.HasPrefix(goType, known.prefix) {
			return known.text
		}
	}
	return ""
}

// actual describes the CBOR that the client sent.
func actual(typ string) string {
	switch typ {
	case "positive integer", "negative integer", "byte string", "map", "tag":
		return "a " + typ
	case "UTF-8 text string":
		return "a text string"
	case "array":
		return "an array"
	default:
		return "a boolean, a float or null"
	}
}

// maxKeyBytes is the longest key that an error repeats.
const maxKeyBytes = 64

// reason says why a payload is rejected whatever its type.
func reason(err error) string {
	if twice, ok := errors.AsType[*cbor.DupMapKeyError](err); ok {
		if key, ok := twice.Key.(string); ok && len(key) <= maxKeyBytes {
			return fmt.Sprintf("contains the key %q twice", key)
		}
		return "contains a key twice"
	}
	if is[*cbor.UnknownFieldError](err) {
		return "has an unknown field"
	}
	if is[*cbor.MaxNestedLevelError](err) {
		return fmt.Sprintf("is nested deeper than %d levels", maxDepth)
	}
	if is[*cbor.MaxArrayElementsError](err) || is[*cbor.MaxMapPairsError](err) {
		return fmt.Sprintf("has an array or a map with more than %d elements", maxElements)
	}
	if is[*cbor.ExtraneousDataError](err) {
		return "is followed by other bytes"
	}
	if is[*cbor.SyntaxError](err) || is[*cbor.SemanticError](err) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "is not valid CBOR"
	}
	return "cannot be decoded"
}

// is reports whether the tree of err contains an E.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
