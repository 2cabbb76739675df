package envelope

import (
	"reflect"
	"sync"

	"github.com/penstock-go/penstock/internal/jsonplan"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// An Encoding says how values of a Go type are encoded as JSON.
type Encoding struct {
	typ      reflect.Type
	noFields bool           // the type is a struct without fields, which has no payload
	plan     *jsonplan.Plan // of the type, or of what it points to; nil if the library encodes it
}

//nolint:gochecknoglobals // a cache: there is one encoding of a type
var encodings sync.Map // of *Encoding by reflect.Type

// EncodingOf returns the encoding of a type.
func EncodingOf(t reflect.Type) *Encoding {
	if known, ok := encodings.Load(t); ok {
		return known.(*Encoding)
	}
	e := &Encoding{typ: t, noFields: t.Kind() == reflect.Struct && t.NumField() == 0}
	if t.Kind() != reflect.Pointer {
		e.plan = jsonplan.Of(t)
	} else if t.Name() == "" {
		e.plan = jsonplan.Of(t.Elem())
	}
	known, _ := encodings.LoadOrStore(t, e)
	return known.(*Encoding)
}

// marshal appends the JSON of v, a value of the type or a pointer to one, to the frame.
func (e *Encoding) marshal(frame *wsconn.Frame, v any) error {
	if e.plan != nil {
		if ok, err := e.marshalPlanned(frame, v); ok || err != nil {
			return err
		}
	}
	return marshal(frame, v)
}

// marshalPlanned reports false if the value is left to the library.
func (e *Encoding) marshalPlanned(frame *wsconn.Frame, v any) (ok bool, err error) {
	defer recoverAsError(&err)
	switch t := reflect.TypeOf(v); {
	case t == e.typ && t.Kind() != reflect.Pointer:
		frame.Append(func(b []byte) []byte {
			b, ok = e.plan.Append(b, v)
			return b
		})
	case t.Kind() == reflect.Pointer && (t == e.typ || t.Elem() == e.typ && e.typ.Kind() != reflect.Pointer) && !reflect.ValueOf(v).IsNil():
		frame.Append(func(b []byte) []byte {
			b, ok = e.plan.AppendPointer(b, v)
			return b
		})
	}
	return ok, nil
}

// marshalAny is marshal for a value of any type.
func marshalAny(frame *wsconn.Frame, v any) error {
	t := reflect.TypeOf(v)
	if t == nil {
		return marshal(frame, v)
	}
	return EncodingOf(t).marshal(frame, v)
}
