package envelope

import (
	"reflect"
	"slices"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonplan"
	"github.com/penstock-go/penstock/internal/wire"
)

// A Decoding decodes the payloads of messages of a type M. Messages are passed as a *M. The exported fields
// may be changed before it is used.
type Decoding struct {
	MayBeAbsent bool // a message without a payload is the zero M, or a pointer to a zero value; true if it has no fields
	JSONOnly    bool // payloads are JSON in every format

	typ           reflect.Type   // M
	pointer       bool           // M is a pointer type
	plan          *jsonplan.Plan // of M, or of what it points to
	rejectUnknown bool
}

// DecodingOf returns the Decoding of a type. With rejectUnknown, members without a field are an error.
func DecodingOf(typ reflect.Type, rejectUnknown bool) Decoding {
	d := Decoding{typ: typ, pointer: typ.Kind() == reflect.Pointer, rejectUnknown: rejectUnknown}
	value := typ
	if d.pointer {
		value = typ.Elem()
	}
	d.plan = jsonplan.Of(value)
	d.MayBeAbsent = value.Kind() == reflect.Struct && value.NumField() == 0
	return d
}

// OfPointer reports whether M is a pointer type.
func (d *Decoding) OfPointer() bool { return d.pointer }

// Elements returns how many elements a payload has, or 0 if it cannot have more than limit. codec, which may
// panic, is one of Formats, or nil for JSON.
func (d *Decoding) Elements(codec Codec, payload []byte, limit int) int {
	if len(payload) <= limit { // an element takes a byte or more
		return 0
	}
	if codec = d.codecOf(codec); codec == nil {
		return wire.Elements(payload)
	} else if counter, ok := codec.(namedCodec).Codec.(interface {
		Elements([]byte, reflect.Type) int
	}); ok {
		return counter.Elements(payload, d.typ)
	}
	return 0
}

// codecOf returns codec, or nil if payloads are JSON in every format.
func (d *Decoding) codecOf(codec Codec) Codec {
	if d.JSONOnly {
		return nil
	}
	return codec
}

// Decode decodes a payload, which is nil if there is none, into a *M or, if into is nil, into a new one.
// codec is nil for JSON. It may panic, as the methods of M and of the codec may.
func (d *Decoding) Decode(codec Codec, payload []byte, into any) (any, error) {
	codec = d.codecOf(codec)
	switch {
	case payload != nil:
	case d.MayBeAbsent:
		codec, payload = nil, []byte("{}")
	case codec == nil:
		return nil, errors.InvalidField("payload", "is missing")
	}
	return d.decodeInto(codec, slices.Clip(payload), into)
}

func (d *Decoding) decodeInto(codec Codec, payload []byte, into any) (any, error) {
	if into == nil {
		into = reflect.New(d.typ).Interface()
	}
	target := into
	if d.pointer {
		target = d.Reset(into)
	}
	if codec == nil {
		return into, unmarshal(d.plan, payload, target, d.rejectUnknown)
	}
	return into, decodeWith(codec, payload, target)
}

// Reset makes a message the zero value, or a pointer to a new zero value, and returns the pointer to
// that.
func (d *Decoding) Reset(message any) any {
	m := reflect.ValueOf(message).Elem()
	if !d.pointer {
		m.SetZero()
		return message
	}
	m.Set(reflect.New(d.typ.Elem()))
	return m.Interface()
}
