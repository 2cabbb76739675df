package jsonplan

import (
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/penstock-go/penstock/internal/jsontag"
)

// An object is a struct.
type object struct {
	fields []field
	byName map[string]int // if there are many fields
	left   bool           // to the library
}

const (
	// maxFields is how many members a plan handles: decoding has a bit for each.
	maxFields = 256

	// manyFields is from how many on their names are found in a map.
	manyFields = 9
)

// A field is a member of the JSON object of a struct.
type field struct {
	*node
	jsontag.Member

	prefix   string // `,"name":`
	embedded []hop  // the embedded pointers on the way to it
	offset   uintptr
	isZero   func(unsafe.Pointer) bool // of omitzero; nil if nothing is omitted
	isEmpty  func(unsafe.Pointer) bool // of omitempty, before it is encoded; nil if nothing is known
	check    bool                      // omitempty looks at what is encoded
}

// A hop is an embedded pointer.
type hop struct {
	offset uintptr
	elem   reflect.Type
}

// objectOf returns the object of a struct type.
func (c *compiler) objectOf(t reflect.Type) *object {
	if o := c.objects[t]; o != nil {
		return o
	}
	o := &object{}
	c.objects[t] = o // before its fields: the type may contain itself
	members, ok := membersOf(t)
	if o.left = !ok || len(members) > maxFields; o.left {
		return o
	}
	for _, m := range members {
		f, ok := c.fieldOf(t, m)
		if !ok {
			*o = object{left: true}
			return o
		}
		o.fields = append(o.fields, f)
	}
	if len(o.fields) >= manyFields {
		o.byName = map[string]int{}
		for i := range o.fields {
			o.byName[o.fields[i].Name] = i
		}
	}
	return o
}

func (c *compiler) fieldOf(t reflect.Type, m jsontag.Member) (f field, ok bool) {
	f.Member = m
	f.prefix = string(append(appendString([]byte{','}, m.Name), ':'))
	for i, index := range m.Index {
		sf := t.Field(index)
		f.offset += sf.Offset
		t = sf.Type
		if i < len(m.Index)-1 && t.Kind() == reflect.Pointer {
			t = t.Elem()
			f.embedded = append(f.embedded, hop{f.offset, t})
			f.offset = 0
		}
	}
	f.node = c.nodeOf(t)
	if m.Quoted {
		inner := f.node
		for inner.kind == kindPointer {
			inner = inner.elem
		}
		if inner.kind != kindInt && inner.kind != kindUint && inner.kind != kindFloat {
			return f, false
		}
		inner.quoted = true // nodes are not shared
	}
	if m.OmitZero {
		if f.isZero = zeroFunc(f.node); f.isZero == nil {
			return f, false
		}
	}
	if m.OmitEmpty {
		f.isEmpty, f.check = emptyFunc(f.node)
	}
	return f, true
}

// find returns the index of the field with a name, or -1. It is most often the one behind the previous one.
func (o *object) find(name []byte, next int) int {
	if next < len(o.fields) && string(name) == o.fields[next].Name {
		return next
	}
	if o.byName != nil {
		if i, ok := o.byName[string(name)]; ok {
			return i
		}
		return -1
	}
	for i := range o.fields {
		if string(name) == o.fields[i].Name {
			return i
		}
	}
	return -1
}

// membersOf returns the members of a struct in their order. They are found as in package encoding/json/v2: breadth-first
// through embedded structs. ok is false if the library rejects the type or has rules of its own for it.
func membersOf(root reflect.Type) (all []jsontag.Member, ok bool) {
	type level struct {
		typ     reflect.Type
		index   []int
		descend bool
	}
	seen := map[reflect.Type]bool{root: true}
	for queue := []level{{root, nil, true}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		names, ignored := map[string]bool{}, 0
		for i := range at.typ.NumField() {
			sf := at.typ.Field(i)
			m, isMember, ok := memberOf(&sf)
			switch {
			case !ok:
				return nil, false
			case !isMember:
				ignored++
				continue
			}
			m.Index = append(slices.Clone(at.index), i)
			if !m.Embedded {
				if names[m.Name] {
					return nil, false
				}
				names[m.Name] = true
				all = append(all, m)
				continue
			}
			inner, ok := embeddable(&sf)
			if !ok {
				return nil, false
			}
			if at.descend {
				queue = append(queue, level{inner, m.Index, !seen[inner]})
			}
			seen[inner] = true
		}
		if ignored > 0 && ignored == at.typ.NumField() {
			return nil, false // the library rejects some of these
		}
	}
	all = jsontag.Dominant(all, func(m jsontag.Member) jsontag.Member { return m })
	slices.SortFunc(all, func(a, b jsontag.Member) int { return slices.Compare(a.Index, b.Index) })
	return all, true
}

// memberOf reads a tag. isMember is false if the field is not part of the JSON, and ok if the tag is unusual.
func memberOf(sf *reflect.StructField) (m jsontag.Member, isMember, ok bool) {
	text, has := sf.Tag.Lookup("json")
	m, isMember = jsontag.Parse(sf.Name, sf.IsExported(), sf.Anonymous, sf.Tag)
	if !isMember {
		return m, false, !has || text == "-"
	}
	if strings.ContainsAny(m.Name, "\\'\"`") || !utf8.ValidString(m.Name) {
		return m, true, false
	}
	for i, option := range m.Options {
		switch option {
		case "omitzero", "omitempty", "string", "embed", "case:strict":
		default:
			return m, true, false
		}
		if slices.Contains(m.Options[:i], option) || m.Embedded && option != "embed" {
			return m, true, false
		}
	}
	return m, true, !(m.Embedded && m.Tagged) && (sf.IsExported() || m.Embedded)
}

// embeddable returns the struct that a field embeds.
func embeddable(sf *reflect.StructField) (inner reflect.Type, ok bool) {
	inner = sf.Type
	pointer := inner.Kind() == reflect.Pointer && inner.Name() == ""
	if pointer {
		inner = inner.Elem()
	}
	ok = inner.Kind() == reflect.Struct && !hasOwnEncoding(inner) && (sf.IsExported() || !pointer)
	return inner, ok
}

type zeroer interface{ IsZero() bool }

// zeroFunc returns what omitzero asks, or nil if a plan does not know it.
func zeroFunc(n *node) func(unsafe.Pointer) bool {
	t := n.typ
	isZeroer := t.Implements(reflect.TypeFor[zeroer]())
	switch {
	case t.Kind() == reflect.Interface && isZeroer:
		return nil
	case t.Kind() == reflect.Pointer && isZeroer:
		return func(p unsafe.Pointer) bool {
			v := reflect.NewAt(t, p).Elem()
			return v.IsNil() || v.Interface().(zeroer).IsZero()
		}
	case isZeroer || reflect.PointerTo(t).Implements(reflect.TypeFor[zeroer]()):
		return func(p unsafe.Pointer) bool { return reflect.NewAt(t, p).Interface().(zeroer).IsZero() }
	}
	switch n.kind {
	case kindBool:
		return func(p unsafe.Pointer) bool { return !*(*bool)(p) }
	case kindString:
		return func(p unsafe.Pointer) bool { return *(*string)(p) == "" }
	default:
		return func(p unsafe.Pointer) bool { return reflect.NewAt(t, p).Elem().IsZero() }
	}
}

// emptyFunc returns what omitempty can know before a value is encoded, and whether it looks at what is encoded.
func emptyFunc(n *node) (isEmpty func(unsafe.Pointer) bool, check bool) {
	switch n.kind {
	case kindBool, kindInt, kindUint, kindFloat, kindTime:
		return nil, false
	case kindString:
		return func(p unsafe.Pointer) bool { return *(*string)(p) == "" }, false
	case kindBytes, kindSlice:
		return func(p unsafe.Pointer) bool { return (*slice)(p).len == 0 }, false
	case kindMap:
		return func(p unsafe.Pointer) bool { return reflect.NewAt(n.typ, p).Elem().Len() == 0 }, false
	case kindByteArray, kindArray:
		return func(unsafe.Pointer) bool { return n.length == 0 }, false
	case kindPointer:
		return func(p unsafe.Pointer) bool { return *(*unsafe.Pointer)(p) == nil }, mayBeEmpty(n.elem)
	default:
		return nil, true
	}
}

// mayBeEmpty reports whether a value may be encoded as null, "", [] or {}.
func mayBeEmpty(n *node) bool {
	switch n.kind {
	case kindBool, kindInt, kindUint, kindFloat, kindTime:
		return false
	case kindArray, kindByteArray:
		return n.length == 0
	default:
		return true
	}
}
