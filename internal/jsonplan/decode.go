package jsonplan

import (
	"reflect"
	"time"
	"unsafe"
)

// A slice is the header of a slice of any type.
type slice struct {
	data unsafe.Pointer
	len  int
	cap  int
}

// decode reads a value into a place that has the zero value.
func (s *scanner) decode(n *node, p unsafe.Pointer) {
	switch n.kind {
	case kindLibrary:
		s.value(reflect.NewAt(n.typ, p).Interface())
	case kindBool:
		*(*bool)(p) = s.readBool()
	case kindString:
		*(*string)(p) = s.readString()
	case kindInt:
		s.decodeInt(n, p)
	case kindUint:
		s.decodeUint(n, p)
	case kindFloat:
		s.decodeFloat(n, p)
	case kindBytes:
		*(*[]byte)(p) = s.readBytes()
	case kindByteArray:
		s.readByteArray(unsafe.Slice((*byte)(p), n.length))
	case kindTime:
		*(*time.Time)(p) = s.readTime()
	case kindPointer:
		if !s.null() {
			elem := reflect.New(n.elem.typ).UnsafePointer()
			*(*unsafe.Pointer)(p) = elem
			s.decode(n.elem, elem)
		}
	case kindSlice:
		s.decodeSlice(n, (*slice)(p))
	case kindArray:
		s.decodeArray(n, p)
	case kindMap:
		s.decodeMap(n, p)
	case kindStruct:
		s.decodeStruct(n.object, p)
	}
}

func (s *scanner) decodeInt(n *node, p unsafe.Pointer) {
	var i int64
	if n.quoted {
		i = s.quotedInt(n.bits)
	} else {
		i = s.readInt(n.bits)
	}
	switch n.bits {
	case 8:
		*(*int8)(p) = int8(i)
	case 16:
		*(*int16)(p) = int16(i)
	case 32:
		*(*int32)(p) = int32(i)
	default:
		*(*int64)(p) = i
	}
}

func (s *scanner) decodeUint(n *node, p unsafe.Pointer) {
	var u uint64
	if n.quoted {
		u = s.quotedUint(n.bits)
	} else {
		u = s.readUint(n.bits)
	}
	switch n.bits {
	case 8:
		*(*uint8)(p) = uint8(u)
	case 16:
		*(*uint16)(p) = uint16(u)
	case 32:
		*(*uint32)(p) = uint32(u)
	default:
		*(*uint64)(p) = u
	}
}

func (s *scanner) decodeFloat(n *node, p unsafe.Pointer) {
	var f float64
	if n.quoted {
		f = s.quotedFloat(n.bits)
	} else {
		f = s.readFloat(n.bits)
	}
	if n.bits == 32 {
		*(*float32)(p) = float32(f)
		return
	}
	*(*float64)(p) = f
}

func (s *scanner) decodeStruct(o *object, p unsafe.Pointer) {
	if s.null() {
		return
	}
	var seen [maxFields / 64]uint64
	next := 0
	for more := s.object(); more; more = s.nextMember() {
		i := o.find(s.name(), next)
		if i < 0 {
			s.fail()
			return
		}
		next = i + 1
		s.once(&seen[i/64], 1<<(i%64))
		f := &o.fields[i]
		at := p
		for _, h := range f.embedded {
			at = h.enter(at)
		}
		s.decode(f.node, unsafe.Add(at, f.offset))
	}
}

// enter returns the embedded struct, which it makes if there is none.
func (h *hop) enter(p unsafe.Pointer) unsafe.Pointer {
	inner := (*unsafe.Pointer)(unsafe.Add(p, h.offset))
	if *inner == nil {
		*inner = reflect.New(h.elem).UnsafePointer()
	}
	return *inner
}

func (s *scanner) decodeSlice(n *node, list *slice) {
	if s.null() {
		return
	}
	var l slice
	for more := s.array(); more; more = s.nextElement() {
		if l.len == l.cap {
			l.grow(n)
		}
		l.len++
		s.decode(n.elem, unsafe.Add(l.data, uintptr(l.len-1)*n.elem.size))
	}
	if l.data == nil {
		l.data = reflect.MakeSlice(n.typ, 0, 0).UnsafePointer()
	}
	list.data, list.len, list.cap = l.data, l.len, l.cap
}

// grow makes room for more elements, which are zero.
func (l *slice) grow(n *node) {
	bigger := reflect.MakeSlice(n.typ, max(4, 2*l.cap), max(4, 2*l.cap))
	if l.len > 0 {
		reflect.Copy(bigger, reflect.SliceAt(n.elem.typ, l.data, l.len))
	}
	l.data, l.cap = bigger.UnsafePointer(), bigger.Len()
}

func (s *scanner) decodeArray(n *node, p unsafe.Pointer) {
	if s.null() {
		return
	}
	i := 0
	for more := s.array(); more; more = s.nextElement() {
		if i == n.length {
			s.fail()
			return
		}
		s.decode(n.elem, unsafe.Add(p, uintptr(i)*n.elem.size))
		i++
	}
	if i != n.length {
		s.fail()
	}
}

func (s *scanner) decodeMap(n *node, p unsafe.Pointer) {
	if s.null() {
		return
	}
	m := reflect.MakeMap(n.typ)
	reflect.NewAt(n.typ, p).Elem().Set(m)
	key, elem := reflect.New(n.typ.Key()).Elem(), reflect.New(n.elem.typ).Elem()
	for more := s.object(); more; more = s.nextMember() {
		key.SetString(s.key())
		if m.MapIndex(key).IsValid() {
			s.fail()
			return
		}
		elem.SetZero()
		s.decode(n.elem, elem.Addr().UnsafePointer())
		m.SetMapIndex(key, elem)
	}
}
