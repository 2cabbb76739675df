package envelope

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/jsonplan"
	"github.com/penstock-go/penstock/internal/jsonv2"
)

// UnmarshalJSON decodes JSON into the value that v points to. Members without a field are ignored.
func UnmarshalJSON(text []byte, v any) error {
	if err := jsonplan.Unmarshal(text, v); err != nil {
		return decodeError(err)
	}
	return nil
}

// unmarshal decodes a payload into the value that v points to, which is the zero value of the type of
// the plan. The scanner has checked that the text is UTF-8; an unpaired surrogate in an escape becomes
// U+FFFD. With rejectUnknown, members without a field are an error.
func unmarshal(plan *jsonplan.Plan, payload []byte, v any, rejectUnknown bool) error {
	if err := plan.Unmarshal(payload, v, rejectUnknown); err != nil {
		return decodeError(err)
	}
	return nil
}

// decodeError returns an error that names the invalid field and the reason, without naming the
// server's types. It has a private part only if code of the application has failed: the client
// receives everything else.
func decodeError(err error) error {
	wrong, ok := failure.AsType[*jsonv2.SemanticError](err)
	if ok && wrong.Err == jsonv2.ErrUnknownName { //nolint:errorlint // not that of an application's method
		return errors.InvalidField(fieldPath(wrong.JSONPointer), "is not a known field")
	}
	if ok && wrong.GoType != nil && wrong.JSONKind != 0 {
		return errors.InvalidField(fieldPath(wrong.JSONPointer), fmt.Sprintf("must be %s, not %s", jsonKind(wrong.GoType), actualJSON(wrong)))
	}
	field := "payload"
	if syntax, ok := failure.AsType[*jsonv2.SyntacticError](err); ok {
		field = fieldPath(syntax.JSONPointer)
	}
	if failure.Is(err, jsonv2.ErrDuplicateName) {
		return errors.InvalidField(field, "must not occur twice")
	}
	e := errors.InvalidField(field, "cannot be decoded")
	e.Err = failure.QuoteDecoder(err)
	return e
}

// Bounds of the path of a field, whose names a client may have chosen.
const (
	maxFieldNameBytes = 64
	maxFieldPathBytes = 256
)

// fieldPath returns the path of a field in a payload: user.names.0 for /user/names/0.
func fieldPath(at jsonv2.Pointer) string {
	if at == "" {
		return "payload"
	}
	var names []string
	for name := range at.Tokens() {
		names = append(names, failure.Shorten(name, maxFieldNameBytes))
	}
	return failure.Shorten(strings.Join(names, "."), maxFieldPathBytes)
}

// jsonKind describes the JSON that decodes into a Go type.
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

// actualJSON describes the JSON that the client sent.
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

// MarshalJSON returns the JSON of v.
func MarshalJSON(v any) (text []byte, err error) {
	defer recoverAsError(&err)
	if text, err = jsonplan.Append(nil, v); err != nil {
		return nil, failure.QuoteEncoder(err)
	}
	return text, nil
}

// CheckEncodable returns the error that the JSON library would return for values of a type, so
// that it is found at registration.
func CheckEncodable(t reflect.Type) error { return checkEncodable(t, map[reflect.Type]bool{}) }

// checkEncodable is CheckEncodable for a type that is part of those known. The methods of a type may return
// an error for a zero value, so a type with methods is not checked.
func checkEncodable(t reflect.Type, known map[reflect.Type]bool) error {
	if known[t] || jsonplan.HasMethods(t) {
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
		if err := jsonplan.Unmarshal([]byte("{}"), reflect.New(t).Interface()); err != nil {
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
		_, err := MarshalJSON(reflect.Zero(t).Interface())
		return err
	}
}

// checkEncodableKey checks the key type of a map: its keys must be strings in JSON.
func checkEncodableKey(t reflect.Type) error {
	if t.Kind() == reflect.Interface || jsonplan.HasMethods(t) {
		return nil
	}
	one := reflect.MakeMap(reflect.MapOf(t, reflect.TypeFor[bool]()))
	one.SetMapIndex(reflect.Zero(t), reflect.ValueOf(true))
	_, err := MarshalJSON(one.Interface())
	return err
}

// isEncoded reports whether a struct field is part of the JSON.
func isEncoded(f reflect.StructField) bool {
	return (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-"
}
