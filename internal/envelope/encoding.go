package envelope

import (
	"reflect"

	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/jsonplan"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// An Encoding says how values of a Go type are encoded as JSON.
type Encoding struct {
	typ      reflect.Type
	noFields bool           // the type is a struct without fields, which has no payload
	plan     *jsonplan.Plan // of the type, or of what it points to
}

// EncodingOf returns the encoding of a type.
func EncodingOf(t reflect.Type) Encoding {
	elem := t
	if t.Kind() == reflect.Pointer {
		elem = t.Elem()
	}
	return Encoding{typ: t, noFields: t.Kind() == reflect.Struct && t.NumField() == 0, plan: jsonplan.Of(elem)}
}

// isNil reports whether v, a value of the type, is a nil pointer.
func (e *Encoding) isNil(v any) bool {
	return e.typ.Kind() == reflect.Pointer && reflect.ValueOf(v).IsNil()
}

// marshal appends the JSON of v, a value of the type or a pointer to one, to the frame. Invalid UTF-8
// becomes U+FFFD, so that one invalid byte in a database does not fail the whole reply.
func (e *Encoding) marshal(frame *wsconn.Frame, v any) error { return marshal(frame, v, e.plan.Append) }

// marshalAny is marshal for a value of any type.
func marshalAny(frame *wsconn.Frame, v any) error { return marshal(frame, v, jsonplan.Append) }

func marshal(frame *wsconn.Frame, v any, appendJSON func(b []byte, v any) ([]byte, error)) (err error) {
	defer recoverAsError(&err)
	frame.Append(func(b []byte) []byte {
		b, err = appendJSON(b, v)
		return b
	})
	if err != nil {
		return failure.QuoteEncoder(err)
	}
	return nil
}
