package router

import (
	"encoding"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
)

// Payloads are decoded and encoded in this file alone.

// rawJSON is JSON that is laid out already.
type rawJSON = jsonv2.Value

//nolint:gochecknoglobals // constants, but for the language
var (
	decodeOptions = jsonv2.JoinOptions(jsonv2.AllowInvalidUTF8(true))
	encodeOptions = jsonv2.JoinOptions(jsonv2.AllowInvalidUTF8(true), jsonv2.Deterministic(true))
)

// unmarshal decodes a payload into what v points to. The scanner has found the
// text to be UTF-8; half a surrogate pair in an escape becomes U+FFFD.
func unmarshal(payload []byte, v any) error {
	if err := jsonv2.Unmarshal(payload, v, decodeOptions); err != nil {
		return decodeError(err)
	}
	return nil
}

// decodeError tells the client which field is wrong and why, in words that do
// not depend on the server's types.
func decodeError(err error) error {
	wrong, ok := asType[*jsonv2.SemanticError](err)
	if ok && wrong.GoType != nil && wrong.JSONKind != 0 {
		return errors.InvalidField(fieldPath(wrong.JSONPointer), fmt.Sprintf("must be %s, not %s", jsonKind(wrong.GoType), actualJSON(wrong)))
	}
	field := "payload"
	if syntax, ok := asType[*jsonv2.SyntacticError](err); ok {
		field = fieldPath(syntax.JSONPointer)
	}
	reason := "cannot be decoded"
	if errorIs(err, jsonv2.ErrDuplicateName) {
		reason = "must not come twice"
	}
	e := errors.InvalidField(field, reason)
	e.Err = err
	return e
}

// fieldPath names a place in a payload: /user/names/0 is user.names.0.
func fieldPath(at jsonv2.Pointer) string {
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
func actualJSON(e *jsonv2.SemanticError) string {
	switch e.JSONKind {
	case jsonv2.KindNull:
		return "null"
	case jsonv2.KindTrue, jsonv2.KindFalse:
		return "a boolean"
	case jsonv2.KindString:
		return "a string"
	case jsonv2.KindNumber:
		if len(e.JSONValue) > 0 && len(e.JSONValue) <= 32 {
			return string(e.JSONValue)
		}
		return "a number"
	case jsonv2.KindBeginArray:
		return "an array"
	default:
		return "an object"
	}
}

// marshal writes the encoding of v. What is not UTF-8 becomes U+FFFD, so that a
// stray byte in a database does not cost a client its answer.
func marshal(w io.Writer, v any) (err error) {
	defer recoverAsError(&err)
	return jsonv2.MarshalWrite(w, v, encodeOptions)
}

// encodable returns what the library has against a type, which it says only when it meets
// a value.
func checkEncodable(t reflect.Type, known map[reflect.Type]bool) error {
	if known[t] || hasOwnEncoding(t) {
		return nil
	}
	known[t] = true
	switch t.Kind() {
	case reflect.Interface:
		return nil
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return checkEncodable(t.Elem(), known)
	case reflect.Map:
		return errors.Join(checkEncodableKey(t.Key()), checkEncodable(t.Elem(), known))
	case reflect.Struct:
		if err := jsonv2.Unmarshal([]byte("{}"), reflect.New(t).Interface(), decodeOptions); err != nil {
			return err
		}
		for field := range t.Fields() {
			if !isEncoded(field) {
				continue
			}
			if err := checkEncodable(field.Type, known); err != nil {
				return fmt.Errorf("field %s: %w", field.Name, err)
			}
		}
		return nil
	default:
		return marshal(io.Discard, reflect.Zero(t).Interface())
	}
}

// checkEncodableKey is about keys, which must be strings in JSON.
func checkEncodableKey(t reflect.Type) error {
	if t.Kind() == reflect.Interface || hasOwnEncoding(t) {
		return nil
	}
	one := reflect.MakeMap(reflect.MapOf(t, reflect.TypeFor[bool]()))
	one.SetMapIndex(reflect.Zero(t), reflect.ValueOf(true))
	return marshal(io.Discard, one.Interface())
}

func isEncoded(f reflect.StructField) bool {
	return (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-"
}

// hasOwnEncoding reports whether a type has methods for its encoding, which may have something
// against a zero value.
func hasOwnEncoding(t reflect.Type) bool {
	for _, is := range []reflect.Type{
		reflect.TypeFor[jsonv2.Marshaler](), reflect.TypeFor[jsonv2.MarshalerTo](), reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextAppender](),
		reflect.TypeFor[jsonv2.Unmarshaler](), reflect.TypeFor[jsonv2.UnmarshalerFrom](), reflect.TypeFor[encoding.TextUnmarshaler](),
	} {
		if t.Implements(is) || reflect.PointerTo(t).Implements(is) {
			return true
		}
	}
	return false
}
