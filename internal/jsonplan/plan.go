package jsonplan

import (
	"reflect"
	"sync"
	"unsafe"
)

// A Plan decodes and encodes values of one type, T. It is safe for concurrent use.
type Plan struct {
	typ     reflect.Type
	pointer unsafe.Pointer // identifies *T in an interface
	root    *node          // nil: the library handles the whole type
	inPlace bool           // the plan can encode a T where an interface stores it
}

// An emptyInterface is how an interface without methods is stored.
type emptyInterface struct{ typ, data unsafe.Pointer }

func partsOf(v any) emptyInterface { return *(*emptyInterface)(unsafe.Pointer(&v)) }

//nolint:gochecknoglobals // a cache: there is one plan of a type
var plans sync.Map // of *Plan by reflect.Type

// Of returns the plan of a type.
func Of(t reflect.Type) *Plan {
	if known, ok := plans.Load(t); ok {
		return known.(*Plan)
	}
	p := &Plan{typ: t, pointer: partsOf(reflect.Zero(reflect.PointerTo(t)).Interface()).typ}
	if root := (compiler{}).node(t); root.kind != kindLibrary {
		p.root = root
		// A type of the size of a pointer may be stored in the interface itself. Methods may change the value.
		p.inPlace = t.Size() != unsafe.Sizeof(uintptr(0)) && !callsMethods(root, map[*node]bool{})
	}
	known, _ := plans.LoadOrStore(t, p)
	return known.(*Plan)
}

var scanners = sync.Pool{New: func() any { return new(scanner) }}

// Unmarshal decodes text into what v points to. Members without a field are ignored. The error is that of
// the library.
func Unmarshal(text []byte, v any) error {
	value := reflect.ValueOf(v)
	if value.Kind() != reflect.Pointer || value.IsNil() || !value.Elem().IsZero() {
		return libraryUnmarshal(text, v, false)
	}
	return Of(value.Type().Elem()).Unmarshal(text, v, false)
}

// Unmarshal decodes text into what v, a *T, points to, which must be the zero value. With strict, members
// without a field are an error. The error is that of the library.
func (p *Plan) Unmarshal(text []byte, v any, strict bool) error {
	if at := p.pointerIn(v); p.root != nil && at != nil {
		if p.root.decode(text, at, strict) {
			return nil
		}
		reflect.ValueOf(v).Elem().SetZero()
	}
	return libraryUnmarshal(text, v, strict)
}

// pointerIn returns v if it is a *T, and otherwise nil.
func (p *Plan) pointerIn(v any) unsafe.Pointer {
	if parts := partsOf(v); parts.typ == p.pointer {
		return parts.data
	}
	return nil
}

// decode decodes text into what p points to, which must be the zero value. It reports false for a text that is
// left to the library.
func (n *node) decode(text []byte, p unsafe.Pointer, strict bool) bool {
	s := scanners.Get().(*scanner)
	s.text, s.at, s.depth, s.failed, s.strict = text, 0, 0, false, strict
	s.value(n, p, false)
	ok := s.finished()
	s.text = nil
	s.dropNames(0)
	scanners.Put(s)
	return ok
}

// Append appends the JSON of v. It appends nothing if it returns an error, which is that of the library.
func Append(b []byte, v any) ([]byte, error) {
	t := reflect.TypeOf(v)
	if t == nil {
		return append(b, "null"...), nil
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return Of(t).Append(b, v)
}

// Append is the function of this name for a T or a *T.
func (p *Plan) Append(b []byte, v any) ([]byte, error) {
	if at := p.place(v); at != nil {
		if text, err := p.root.append(b, at, 0, false); err == nil {
			return text, nil
		}
	}
	text, err := libraryAppend(b, v)
	if err != nil {
		return b, err
	}
	return text, nil
}

// place returns a pointer to the T that v is or points to, or nil if that is left to the library. What it
// points to must not be changed.
func (p *Plan) place(v any) unsafe.Pointer {
	if p.root == nil {
		return nil
	}
	if at := p.pointerIn(v); at != nil {
		return at
	}
	switch value := reflect.ValueOf(v); {
	case !value.IsValid() || value.Type() != p.typ:
		return nil
	case p.inPlace:
		return partsOf(v).data
	default:
		place := reflect.New(p.typ)
		place.Elem().Set(value)
		return place.UnsafePointer()
	}
}
