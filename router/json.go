package router

import (
	"encoding"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/penstock-go/penstock/errors"
)

// This file holds the choice of a JSON library: nothing else in the router
// decodes or encodes a payload.

// rawJSON is JSON that is laid out already.
type rawJSON = jsontext.Value

//nolint:gochecknoglobals // constants, but for the language
var (
	decodeOptions = json.JoinOptions(jsontext.AllowInvalidUTF8(true))
	encodeOptions = json.JoinOptions(jsontext.AllowInvalidUTF8(true), json.Deterministic(true))
)

// unmarshal decodes a payload into what v points to. The scanner has found the
// text to be UTF-8; half a surrogate pair in an escape becomes U+FFFD.
func unmarshal(payload []byte, v any) error {
	if err := json.Unmarshal(payload, v, decodeOptions); err != nil {
		return decodeError(err)
	}
	return nil
}

// decodeError tells the client which field is wrong and why, in words that do
// not depend on the server's types.
func decodeError(err error) error {
	wrong, ok := find[*json.SemanticError](err)
	if ok && wrong.GoType != nil && wrong.JSONKind != 0 {
		return errors.InvalidField(fieldAt(wrong.JSONPointer), fmt.Sprintf("must be %s, not %s", jsonKind(wrong.GoType), given(wrong)))
	}
	field := "payload"
	if syntax, ok := find[*jsontext.SyntacticError](err); ok {
		field = fieldAt(syntax.JSONPointer)
	}
	reason := "cannot be decoded"
	if is(err, jsontext.ErrDuplicateName) {
		reason = "must not come twice"
	}
	e := errors.InvalidField(field, reason)
	e.Err = err
	return e
}

// fieldAt names a place in a payload: /user/names/0 is user.names.0.
func fieldAt(at jsontext.Pointer) string {
	if at == "" {
		return "payload"
	}
	var names []string
	for name := range at.Tokens() {
		names = append(names, name)
	}
	return strings.Join(names, ".")
}

// jsonKind names the JSON that decodes into a Go type.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "a boolean"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Pointer:
		return jsonKind(t.Elem())
	default:
		if strings.HasPrefix(t.Kind().String(), "int") || strings.HasPrefix(t.Kind().String(), "uint") {
			return "an integer in range"
		}
		return "something else"
	}
}

// given names what stood there instead.
func given(e *json.SemanticError) string {
	switch e.JSONKind {
	case jsontext.KindNull:
		return "null"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "a boolean"
	case jsontext.KindString:
		return "a string"
	case jsontext.KindNumber:
		if len(e.JSONValue) > 0 && len(e.JSONValue) <= 32 {
			return string(e.JSONValue)
		}
		return "a number"
	case jsontext.KindBeginArray:
		return "an array"
	default:
		return "an object"
	}
}

// marshal writes the encoding of v. What is not UTF-8 becomes U+FFFD, so that a
// stray byte in a database does not cost a client its answer.
func marshal(w io.Writer, v any) (err error) {
	defer contain(&err)
	return json.MarshalWrite(w, v, encodeOptions)
}

// encodable returns what the library has against a type, which it says only when it meets
// a value.
func encodable(t reflect.Type, known map[reflect.Type]bool) error {
	if known[t] || encodesItself(t) {
		return nil
	}
	known[t] = true
	switch t.Kind() {
	case reflect.Interface:
		return nil
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return encodable(t.Elem(), known)
	case reflect.Map:
		return errors.Join(encodableKey(t.Key()), encodable(t.Elem(), known))
	case reflect.Struct:
		if err := json.Unmarshal([]byte("{}"), reflect.New(t).Interface(), decodeOptions); err != nil {
			return err
		}
		for field := range t.Fields() {
			if !travels(field) {
				continue
			}
			if err := encodable(field.Type, known); err != nil {
				return fmt.Errorf("field %s: %w", field.Name, err)
			}
		}
		return nil
	default:
		return marshal(io.Discard, reflect.Zero(t).Interface())
	}
}

// encodableKey is about keys, which must be strings in JSON.
func encodableKey(t reflect.Type) error {
	if t.Kind() == reflect.Interface || encodesItself(t) {
		return nil
	}
	one := reflect.MakeMap(reflect.MapOf(t, reflect.TypeFor[bool]()))
	one.SetMapIndex(reflect.Zero(t), reflect.ValueOf(true))
	return marshal(io.Discard, one.Interface())
}

func travels(f reflect.StructField) bool {
	return (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-"
}

// encodesItself reports whether a type has methods for its encoding, which may have something
// against a zero value.
func encodesItself(t reflect.Type) bool {
	for _, is := range []reflect.Type{
		reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.MarshalerTo](), reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextAppender](),
		reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[json.UnmarshalerFrom](), reflect.TypeFor[encoding.TextUnmarshaler](),
	} {
		if t.Implements(is) || reflect.PointerTo(t).Implements(is) {
			return true
		}
	}
	return false
}
