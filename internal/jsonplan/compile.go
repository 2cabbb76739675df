package jsonplan

import (
	"encoding"
	"reflect"
	"time"

	"github.com/penstock-go/penstock/internal/jsonv2"
)

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
	kindRaw    // json.RawMessage or jsontext.Value
	kindAny    // an interface without methods
	kindAnyMap // map[string]any
	kindPointer
	kindSlice
	kindArray
	kindMap
	kindStruct
)

// A node is a type in a plan. It never changes once the plan is complete.
type node struct {
	kind    kind
	bits    uint8 // of a number
	typ     reflect.Type
	size    uintptr
	elem    *node         // of a pointer, slice, array or map
	object  *object       // of a struct
	library bool          // the library encodes it, even if the plan decodes it
	empty   reflect.Value // of a slice: one without elements that is not nil
}

// An object is the plan of a struct.
type object struct {
	fields []field
	byName map[string]int // index in fields
}

// A field is a member of an object.
type field struct {
	name      string
	prefix    string // a comma, the name and a colon
	path      []step // of embedded pointers on the way to the field
	offset    uintptr
	node      *node
	quoted    bool // a number in a string
	omitZero  bool
	isZeroer  bool // its type has the method IsZero
	omitEmpty bool
}

// A step is an embedded pointer.
type step struct {
	offset uintptr
	elem   reflect.Type
}

// A compiler compiles a type and those that it contains.
type compiler map[reflect.Type]*node

// node returns the node of a type. A type that contains itself gets the node that is not complete yet.
func (c compiler) node(t reflect.Type) *node {
	if n := c[t]; n != nil {
		return n
	}
	n := &node{typ: t, size: t.Size()}
	c[t] = n
	switch {
	case t == reflect.TypeFor[time.Time]():
		n.kind = kindTime
		return n
	case t == reflect.TypeFor[jsonv2.Value](), t.PkgPath() == "encoding/json" && t.Name() == "RawMessage":
		n.kind, n.library = kindRaw, true
		return n
	case HasMethods(t), t == reflect.TypeFor[time.Duration]():
		return n
	}
	switch t.Kind() {
	case reflect.Bool:
		n.kind = kindBool
	case reflect.String:
		n.kind = kindString
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n.kind, n.bits = kindInt, uint8(t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		n.kind, n.bits = kindUint, uint8(t.Bits())
	case reflect.Float32, reflect.Float64:
		n.kind, n.bits = kindFloat, uint8(t.Bits())
	case reflect.Pointer:
		c.setElement(n, kindPointer)
	case reflect.Slice, reflect.Array:
		c.setList(n)
	case reflect.Map:
		if key := t.Key(); key.Kind() == reflect.String && !HasMethods(key) {
			c.setElement(n, kindMap)
		}
	case reflect.Interface:
		if t.NumMethod() == 0 {
			n.kind, n.library = kindAny, true
		}
	case reflect.Struct:
		n.kind = kindStruct
		if n.object = c.object(t); n.object == nil {
			n.kind = kindLibrary
		}
	}
	return n
}

func (c compiler) setList(n *node) {
	list, bytes := kindSlice, kindBytes
	if n.typ.Kind() == reflect.Array {
		list, bytes = kindArray, kindByteArray
	}
	if n.typ.Elem() == reflect.TypeFor[byte]() {
		n.kind = bytes
		return
	}
	if list == kindSlice {
		n.empty = reflect.MakeSlice(n.typ, 0, 0)
	}
	c.setElement(n, list)
}

// setElement sets the kind of a node with elements. If the library handles the elements, it handles the
// whole value.
func (c compiler) setElement(n *node, k kind) {
	if elem := c.node(n.typ.Elem()); elem.kind != kindLibrary {
		n.kind, n.elem, n.library = k, elem, elem.library
	}
	if n.typ == reflect.TypeFor[map[string]any]() {
		n.kind = kindAnyMap
	}
}

// object returns the plan of a struct, or nil if it is left to the library.
func (c compiler) object(t reflect.Type) *object {
	members, ok := membersOf(t)
	if !ok {
		return nil
	}
	o := &object{byName: make(map[string]int, len(members))}
	library := 0
	for i, m := range members {
		f, ok := c.field(t, m)
		if !ok {
			return nil
		}
		if f.node.kind == kindLibrary || f.node.library {
			library++
		}
		o.byName[f.name] = i
		o.fields = append(o.fields, f)
	}
	if library*maxLibraryShare > len(members) {
		return nil
	}
	return o
}

// maxLibraryShare is the inverse of the share of members that a plan gives to the library one by one: each
// costs more than as part of the whole struct.
const maxLibraryShare = 3

// field returns the field of a member. It reports false if the struct is left to the library.
func (c compiler) field(t reflect.Type, m TaggedMember) (field, bool) {
	f := field{name: m.Name, prefix: "," + string(AppendString(nil, m.Name)) + ":", quoted: m.Quoted, omitZero: m.OmitZero, omitEmpty: m.OmitEmpty}
	for i, index := range m.Index {
		if i > 0 && t.Kind() == reflect.Pointer {
			t = t.Elem()
			f.path = append(f.path, step{f.offset, t})
			f.offset = 0
		}
		at := t.Field(index)
		f.offset += at.Offset
		t = at.Type
	}
	f.node = c.node(t)
	isZeroer := reflect.TypeFor[isZeroer]()
	if f.omitZero && f.node.kind != kindTime {
		f.isZeroer = t.Implements(isZeroer) || reflect.PointerTo(t).Implements(isZeroer)
		if f.isZeroer && t.Kind() == reflect.Interface {
			return field{}, false
		}
	}
	if f.quoted {
		number := f.node
		for number.kind == kindPointer {
			number = number.elem
		}
		return f, number.kind == kindInt || number.kind == kindUint || number.kind == kindFloat
	}
	return f, true
}

// An isZeroer says whether the option omitzero omits it.
type isZeroer interface{ IsZero() bool }

// callsMethods reports whether encoding a value calls methods, which may change it.
func callsMethods(n *node, seen map[*node]bool) bool {
	if n == nil || seen[n] {
		return false
	}
	seen[n] = true
	if n.kind == kindLibrary || n.library || callsMethods(n.elem, seen) {
		return true
	}
	if n.kind != kindStruct {
		return false
	}
	for i := range n.object.fields {
		if f := &n.object.fields[i]; f.isZeroer || callsMethods(f.node, seen) {
			return true
		}
	}
	return false
}

// HasMethods reports whether a type has methods for its encoding, which only the library calls.
func HasMethods(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	for _, is := range []reflect.Type{
		reflect.TypeFor[jsonv2.Marshaler](), reflect.TypeFor[jsonv2.MarshalerTo](), reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextAppender](),
		reflect.TypeFor[jsonv2.Unmarshaler](), reflect.TypeFor[jsonv2.UnmarshalerFrom](), reflect.TypeFor[encoding.TextUnmarshaler](),
	} {
		if t.Implements(is) || pointer.Implements(is) {
			return true
		}
	}
	return false
}
