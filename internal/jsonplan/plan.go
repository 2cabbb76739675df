package jsonplan

import (
	"encoding"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/penstock-go/penstock/internal/jsonv2"
)

// A Plan decodes and encodes values of a type.
type Plan struct {
	root   *node
	direct bool // an interface may hold the value itself instead of a pointer to it
}

//nolint:gochecknoglobals // a cache: there is one plan of a type
var plans sync.Map // of *Plan by reflect.Type; nil for a type that is left to the library

// Of returns the plan of a type, or nil if it is left to the library.
func Of(t reflect.Type) *Plan {
	if known, ok := plans.Load(t); ok {
		return known.(*Plan)
	}
	var p *Plan
	if root := compile(t); root.kind != kindLibrary {
		p = &Plan{root: root, direct: mayBeDirect(t)}
	}
	known, _ := plans.LoadOrStore(t, p)
	return known.(*Plan)
}

// mayBeDirect reports whether an interface may hold values of a type as the pointer that they consist of.
func mayBeDirect(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Map:
		return true
	case reflect.Struct, reflect.Array:
		return t.Size() == unsafe.Sizeof(uintptr(0))
	default:
		return false
	}
}

// Decode decodes a text into what v points to: a zero value of the type. It reports false if the text is left to the
// library; the value may then have changed. It may panic as methods of the type may.
func (p *Plan) Decode(text []byte, v any) bool {
	s := scanner{text: text, cache: caches.Get().(*stringCache)}
	s.decode(p.root, reflect.ValueOf(v).UnsafePointer())
	caches.Put(s.cache)
	return s.end() == nil
}

// Append appends the JSON of v, a value of the type. It reports false, with the bytes as they were, if the value is
// left to the library. It may panic as methods of the type may.
func (p *Plan) Append(b []byte, v any) ([]byte, bool) {
	var at unsafe.Pointer
	if p.direct {
		place := reflect.New(p.root.typ)
		place.Elem().Set(reflect.ValueOf(v))
		at = place.UnsafePointer()
	} else {
		at = (*[2]unsafe.Pointer)(unsafe.Pointer(&v))[1]
	}
	return p.appendAt(b, at)
}

// AppendPointer is Append for what v points to, which must not be nil.
func (p *Plan) AppendPointer(b []byte, v any) ([]byte, bool) {
	return p.appendAt(b, reflect.ValueOf(v).UnsafePointer())
}

func (p *Plan) appendAt(b []byte, at unsafe.Pointer) ([]byte, bool) {
	e := encoder{b}
	if err := e.append(p.root, at, 0); err != nil {
		return b, false
	}
	return e.b, true
}

// A kind says how a value is decoded and encoded.
type kind uint8

const (
	kindLibrary kind = iota // by the library
	kindBool
	kindString
	kindInt
	kindUint
	kindFloat
	kindBytes     // []byte
	kindByteArray // [n]byte
	kindTime
	kindPointer
	kindSlice
	kindArray
	kindMap
	kindStruct
)

// A node is a type, and how its values are decoded and encoded.
type node struct {
	kind   kind
	quoted bool // a number in a string
	bits   int  // of a number
	length int  // of an array
	typ    reflect.Type
	size   uintptr
	elem   *node   // of a pointer, slice, array or map
	object *object // of a struct
}

// A compiler makes the nodes of one plan.
type compiler struct {
	objects  map[reflect.Type]*object
	visiting map[reflect.Type]bool // named types other than structs that it is looking at
}

// compile returns the plan of a type.
func compile(t reflect.Type) *node {
	c := compiler{map[reflect.Type]*object{}, map[reflect.Type]bool{}}
	root := c.nodeOf(t)
	c.leave()
	if inner := root.innermost(); inner.object != nil && inner.object.left {
		return &node{typ: t}
	}
	return root
}

func (c *compiler) nodeOf(t reflect.Type) *node {
	n := &node{typ: t, size: t.Size()}
	switch {
	case t == reflect.TypeFor[time.Time]():
		n.kind = kindTime
		return n
	case t == reflect.TypeFor[time.Duration](), hasOwnEncoding(t):
		return n
	}
	if t.Kind() != reflect.Struct && t.Name() != "" {
		if c.visiting[t] { // type List []List
			return n
		}
		c.visiting[t] = true
		defer delete(c.visiting, t)
	}
	c.setKind(n)
	return n
}

func (c *compiler) setKind(n *node) {
	switch t := n.typ; t.Kind() {
	case reflect.Bool:
		n.kind = kindBool
	case reflect.String:
		n.kind = kindString
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n.kind, n.bits = kindInt, t.Bits()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		n.kind, n.bits = kindUint, t.Bits()
	case reflect.Float32, reflect.Float64:
		n.kind, n.bits = kindFloat, t.Bits()
	case reflect.Pointer:
		c.setElement(n, kindPointer)
	case reflect.Slice:
		if n.kind = kindBytes; t.Elem() != reflect.TypeFor[byte]() {
			c.setElement(n, kindSlice)
		}
	case reflect.Array:
		n.length = t.Len()
		if n.kind = kindByteArray; t.Elem() != reflect.TypeFor[byte]() {
			c.setElement(n, kindArray)
		}
	case reflect.Map:
		if t.Key().Kind() == reflect.String && !hasOwnEncoding(t.Key()) {
			c.setElement(n, kindMap)
		}
	case reflect.Struct:
		n.kind, n.object = kindStruct, c.objectOf(t)
	}
}

// setElement sets the kind of a node with elements. If the library handles the elements, it handles the whole value.
func (c *compiler) setElement(n *node, k kind) {
	n.elem = c.nodeOf(n.typ.Elem())
	if n.kind = k; n.elem.kind == kindLibrary {
		n.kind, n.elem = kindLibrary, nil
	}
}

// leave leaves the values to the library whose struct is, when all structs are known.
func (c *compiler) leave() {
	for changed := true; changed; {
		changed = false
		for _, o := range c.objects {
			changed = o.leave() || changed
		}
	}
}

// leave reports whether it has left a field to the library.
func (o *object) leave() (changed bool) {
	for i := range o.fields {
		f := &o.fields[i]
		if inner := f.innermost().object; inner != nil && inner.left {
			f.node = &node{typ: f.typ, size: f.size}
			changed = true
		}
	}
	return changed
}

// innermost returns the node itself, or that of its elements.
func (n *node) innermost() *node {
	for n.elem != nil {
		n = n.elem
	}
	return n
}

// hasOwnEncoding reports whether values of a type have methods that encode or decode them.
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
