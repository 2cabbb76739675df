package contract

import (
	"encoding"
	"reflect"
	"slices"

	"github.com/penstock-go/penstock/internal/jsonv2"
)

// The interfaces by which types encode themselves.
//
//nolint:gochecknoglobals // never changed
var (
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	textMarshalers  = []reflect.Type{reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextAppender]()}
	jsonMarshalers  = []reflect.Type{reflect.TypeFor[jsonv2.Marshaler](), reflect.TypeFor[jsonv2.MarshalerTo]()}
	jsonMethods     = append(slices.Clone(jsonMarshalers), reflect.TypeFor[jsonv2.Unmarshaler](), reflect.TypeFor[jsonv2.UnmarshalerFrom]())
	marshalers      = slices.Concat(jsonMarshalers, textMarshalers)
)

// implementsAny reports whether a type or a pointer to it has one of the interfaces: the JSON library
// calls methods of either. An interface type has the methods of its values, which are its variants.
func implementsAny(t reflect.Type, interfaces ...reflect.Type) bool {
	if t.Kind() == reflect.Pointer && t.Name() == "" || t.Kind() == reflect.Interface {
		return false // null if it is nil; otherwise the type that it points to counts
	}
	return slices.ContainsFunc(interfaces, func(is reflect.Type) bool {
		return t.Implements(is) || reflect.PointerTo(t).Implements(is)
	})
}

// isRawJSON reports whether the value is JSON already.
func isRawJSON(t reflect.Type) bool {
	return t == reflect.TypeFor[jsonv2.Value]() || t.PkgPath() == "encoding/json" && t.Name() == "RawMessage"
}

func isNumber(t reflect.Type) bool {
	return t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64 && t.Kind() != reflect.Uintptr
}

// hasDefinition reports whether a type has a definition of its own: types with fields, values or a
// schema, and types that may contain themselves.
func hasDefinition(t reflect.Type, opts *Options) bool {
	if t.Name() == "" || t.PkgPath() == "" || t == timeType || isRawJSON(t) {
		return false
	}
	if _, ok := schemaOf(t, opts); ok || hasEnum(t) {
		return true
	}
	if implementsAny(t, append(slices.Clone(jsonMethods), textMarshalers...)...) {
		return false
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Array, reflect.Map, reflect.Pointer:
		return true
	case reflect.Interface:
		return len(opts.Variants[t]) > 0
	default:
		return false
	}
}

// schemaOf returns the JSON Schema that the application has written for a type.
func schemaOf(t reflect.Type, opts *Options) (string, bool) {
	if text, ok := opts.Schemas[t]; ok {
		return text, true
	}
	return callMethod(t, "JSONSchema")
}

// callMethod calls a method of the zero value of a type that returns a string, if there is one.
func callMethod(t reflect.Type, name string) (text string, ok bool) {
	method := methodOf(t, name)
	if !method.IsValid() || method.Type() != reflect.TypeFor[func() string]() {
		return "", false
	}
	return method.Call(nil)[0].String(), true
}

// embedsMethod reports whether a struct embeds a type with a method, so that its own may be that of a part.
func embedsMethod(t reflect.Type, name string) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	for f := range t.Fields() {
		if f.Anonymous && methodOf(indirect(f.Type), name).IsValid() {
			return true
		}
	}
	return false
}

// methodOf returns a method of the zero value of a type, or of a pointer to it.
func methodOf(t reflect.Type, name string) reflect.Value {
	if t.Kind() == reflect.Interface || t.Kind() == reflect.Pointer {
		return reflect.Value{} // without a value
	}
	return reflect.New(t).MethodByName(name)
}

// hasEnum reports whether a type has a method Enum. A struct that is encoded as an object has that of an
// embedded field.
func hasEnum(t reflect.Type) bool {
	if t.Kind() == reflect.Struct && !implementsAny(t, marshalers...) {
		return false
	}
	method := methodOf(t, "Enum")
	return method.IsValid() && method.Type().NumIn() == 0 && method.Type().NumOut() == 1 && method.Type().Out(0).Kind() == reflect.Slice
}

func enumOf(t reflect.Type) reflect.Value { return methodOf(t, "Enum").Call(nil)[0] }
