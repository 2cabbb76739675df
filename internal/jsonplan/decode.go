package jsonplan

import (
	"reflect"
	"time"
	"unsafe"
)

// value reads a value into p, which must point to the zero value of the node's type. quoted means that a
// number is in a string.
func (s *scanner) value(n *node, p unsafe.Pointer, quoted bool) {
	switch n.kind {
	case kindString:
		*(*string)(p) = s.readString()
	case kindInt, kindUint, kindFloat:
		s.numberValue(n, p, quoted)
	case kindStruct:
		s.structValue(n.object, p)
	case kindBool:
		*(*bool)(p) = s.readBool()
	case kindBytes:
		*(*[]byte)(p) = s.readBytes()
	case kindByteArray:
		s.readByteArray(unsafe.Slice((*byte)(p), n.size))
	case kindTime:
		*(*time.Time)(p) = s.readTime()
	case kindRaw:
		*(*[]byte)(p) = s.readRaw()
	case kindAny:
		*(*any)(p) = s.readAny()
	case kindAnyMap:
		if !s.null() {
			*(*map[string]any)(p) = s.readAnyMap()
		}
	case kindPointer:
		if !s.null() {
			elem := reflect.New(n.elem.typ).UnsafePointer()
			*(*unsafe.Pointer)(p) = elem
			s.value(n.elem, elem, quoted)
		}
	case kindSlice:
		s.sliceValue(n, p)
	case kindArray:
		s.arrayValue(n, p)
	case kindMap:
		s.mapValue(n, p)
	default:
		s.readLibrary(n.typ, p)
	}
}

func (s *scanner) numberValue(n *node, p unsafe.Pointer, quoted bool) {
	if quoted && !s.quote() {
		return
	}
	switch n.kind {
	case kindInt:
		setInt(n, p, s.readInt(int(n.bits)))
	case kindUint:
		setInt(n, p, int64(s.readUint(int(n.bits))))
	default:
		if f := s.readFloat(int(n.bits)); n.bits == 64 {
			*(*float64)(p) = f
		} else {
			*(*float32)(p) = float32(f)
		}
	}
	if quoted {
		s.unquote()
	}
}

// setInt sets an integer, signed or not, of the size of the node.
func setInt(n *node, p unsafe.Pointer, i int64) {
	switch n.bits {
	case 64:
		*(*int64)(p) = i
	case 32:
		*(*int32)(p) = int32(i)
	case 16:
		*(*int16)(p) = int16(i)
	default:
		*(*int8)(p) = int8(i)
	}
}

// structValue reads an object. It looks for each member first where the order of the fields suggests it.
func (s *scanner) structValue(o *object, p unsafe.Pointer) {
	if s.null() {
		return
	}
	var seen [maxMembers / 64]uint64
	others := unknown{from: len(s.names)}
	next := 0
	for more := s.object(); more; more = s.nextMember() {
		name := s.name()
		if next >= len(o.fields) || o.fields[next].name != string(name) {
			i, known := o.byName[string(name)]
			if !known && s.strict {
				s.fail()
				return
			}
			if !known {
				s.skipNamed(&others, name)
				continue
			}
			next = i
		}
		word, bit := &seen[next/64%len(seen)], uint64(1)<<(next%64)
		if *word&bit != 0 {
			s.fail()
			return
		}
		*word |= bit
		f := &o.fields[next]
		s.value(f.node, f.make(p), f.quoted)
		next++
	}
	if len(s.names) > others.from {
		s.dropNames(others.from)
	}
}

// make returns a pointer to the field of a struct. It makes the embedded structs that the field belongs to.
func (f *field) make(p unsafe.Pointer) unsafe.Pointer {
	for _, step := range f.path {
		to := (*unsafe.Pointer)(unsafe.Add(p, step.offset))
		if *to == nil {
			*to = reflect.New(step.elem).UnsafePointer()
		}
		p = *to
	}
	return unsafe.Add(p, f.offset)
}

// A sliceHeader is a slice of any type.
type sliceHeader struct {
	data     unsafe.Pointer
	len, cap int
}

// The first array of a slice has firstElements elements, or one if they are larger than largeElement bytes.
const (
	firstElements = 4
	largeElement  = 64
)

func (s *scanner) sliceValue(n *node, p unsafe.Pointer) {
	if s.null() {
		return
	}
	list, slice := (*sliceHeader)(p), reflect.NewAt(n.typ, p).Elem()
	for more := s.array(); more; more = s.nextElement() {
		if list.len == list.cap {
			grow := 1
			if list.cap == 0 && n.elem.size <= largeElement {
				grow = firstElements
			}
			slice.Grow(grow) // the new elements are zero
		}
		list.len++
		s.value(n.elem, unsafe.Add(list.data, uintptr(list.len-1)*n.elem.size), false)
	}
	if list.data == nil {
		slice.Set(n.empty)
	}
}

func (s *scanner) arrayValue(n *node, p unsafe.Pointer) {
	if s.null() {
		return
	}
	i, length := 0, n.typ.Len()
	for more := s.array(); more; more = s.nextElement() {
		if i == length {
			s.fail()
			return
		}
		s.value(n.elem, unsafe.Add(p, uintptr(i)*n.elem.size), false)
		i++
	}
	if i != length {
		s.fail()
	}
}

func (s *scanner) mapValue(n *node, p unsafe.Pointer) {
	if s.null() {
		return
	}
	members := reflect.MakeMap(n.typ)
	reflect.NewAt(n.typ, p).Elem().Set(members)
	key, elem := reflect.New(n.typ.Key()), reflect.New(n.elem.typ)
	for more := s.object(); more; more = s.nextMember() {
		before := members.Len()
		key.Elem().SetString(s.key())
		s.value(n.elem, elem.UnsafePointer(), false)
		members.SetMapIndex(key.Elem(), elem.Elem())
		if members.Len() == before { // the name occurs twice
			s.fail()
			return
		}
		elem.Elem().SetZero()
	}
}
