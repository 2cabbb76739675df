package router

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file holds the choice of a JSON library: nothing else in the router
// decodes or encodes a payload.

// decode decodes a payload into a new M.
func decode[M Message](payload []byte) (Message, error) {
	var m M
	if err := json.Unmarshal(payload, &m); err != nil {
		return nil, decodeError(err)
	}
	return m, nil
}

// decodeError tells the client which field is wrong and why, in words that do
// not depend on the server's types.
func decodeError(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := "payload"
		if wrong.Field != "" {
			field = wrong.Field
		}
		return errors.InvalidField(field, fmt.Sprintf("must be %s, not %s", jsonKind(wrong.Type), wrong.Value))
	}
	e := errors.InvalidField("payload", "cannot be decoded")
	e.Err = err
	return e
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

// An encoder appends JSON to the frame that it is bound to.
type encoder struct {
	*json.Encoder
	frame *wsconn.Frame
}

func (e *encoder) Write(p []byte) (int, error) { return e.frame.Write(p) }

var encoders = sync.Pool{New: func() any {
	e := &encoder{}
	e.Encoder = json.NewEncoder(e)
	e.SetEscapeHTML(false)
	return e
}}

// appendJSON appends the encoding of v to f.
func appendJSON(f *wsconn.Frame, v any) error {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	e.frame = f
	err := e.Encode(v)
	e.frame = nil
	if err != nil {
		return err
	}
	f.Truncate(len(f.Text()) - 1) // Encode ends with a newline
	return nil
}
