package jsonplan

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// An encoder appends JSON.
type encoder struct{ b []byte }

// append appends a value, around which there are depth structs, lists and maps.
func (e *encoder) append(n *node, p unsafe.Pointer, depth int) (err error) {
	switch n.kind {
	case kindLibrary:
		e.b, err = appendValue(e.b, reflect.NewAt(n.typ, p).Interface())
	case kindBool:
		e.b = strconv.AppendBool(e.b, *(*bool)(p))
	case kindString:
		e.b = appendString(e.b, *(*string)(p))
	case kindInt, kindUint, kindFloat:
		err = e.appendNumber(n, p)
	case kindBytes:
		e.b = appendBytes(e.b, *(*[]byte)(p))
	case kindByteArray:
		e.b = appendBytes(e.b, unsafe.Slice((*byte)(p), n.length))
	case kindTime:
		e.b, err = appendTime(e.b, *(*time.Time)(p))
	case kindPointer:
		if elem := *(*unsafe.Pointer)(p); elem != nil {
			return e.append(n.elem, elem, depth+1)
		}
		e.b = append(e.b, "null"...)
	case kindSlice:
		list := (*slice)(p)
		err = e.appendList(n, list.data, list.len, depth)
	case kindArray:
		err = e.appendList(n, p, n.length, depth)
	case kindMap:
		err = e.appendMap(n, p, depth)
	case kindStruct:
		err = e.appendStruct(n.object, p, depth)
	}
	return err
}

func (e *encoder) appendNumber(n *node, p unsafe.Pointer) (err error) {
	if n.quoted {
		e.b = append(e.b, '"')
	}
	switch n.kind {
	case kindInt:
		e.b = strconv.AppendInt(e.b, n.intAt(p), 10)
	case kindUint:
		e.b = strconv.AppendUint(e.b, n.uintAt(p), 10)
	default:
		f := 0.
		if n.bits == 32 {
			f = float64(*(*float32)(p))
		} else {
			f = *(*float64)(p)
		}
		e.b, err = appendFloat(e.b, f, n.bits)
	}
	if n.quoted {
		e.b = append(e.b, '"')
	}
	return err
}

func (n *node) intAt(p unsafe.Pointer) int64 {
	switch n.bits {
	case 8:
		return int64(*(*int8)(p))
	case 16:
		return int64(*(*int16)(p))
	case 32:
		return int64(*(*int32)(p))
	default:
		return *(*int64)(p)
	}
}

func (n *node) uintAt(p unsafe.Pointer) uint64 {
	switch n.bits {
	case 8:
		return uint64(*(*uint8)(p))
	case 16:
		return uint64(*(*uint16)(p))
	case 32:
		return uint64(*(*uint32)(p))
	default:
		return *(*uint64)(p)
	}
}

// appendStruct appends an object. The comma before the first member that is present becomes the opening brace.
func (e *encoder) appendStruct(o *object, p unsafe.Pointer, depth int) error {
	if depth >= maxDepth {
		return errLeft
	}
	begin := len(e.b)
	for i := range o.fields {
		f := &o.fields[i]
		at, ok := f.find(p)
		if !ok || f.isZero != nil && f.isZero(at) || f.isEmpty != nil && f.isEmpty(at) {
			continue
		}
		before := len(e.b)
		e.b = append(e.b, f.prefix...)
		if err := e.append(f.node, at, depth+1); err != nil {
			return err
		}
		if f.check && isEmpty(e.b[before+len(f.prefix):]) {
			e.b = e.b[:before]
		}
	}
	if len(e.b) == begin {
		e.b = append(e.b, "{}"...)
		return nil
	}
	e.b[begin] = '{'
	e.b = append(e.b, '}')
	return nil
}

// find returns where a field is. ok is false if it belongs to an embedded struct that is missing.
func (f *field) find(p unsafe.Pointer) (at unsafe.Pointer, ok bool) {
	for _, h := range f.embedded {
		if p = *(*unsafe.Pointer)(unsafe.Add(p, h.offset)); p == nil {
			return nil, false
		}
	}
	return unsafe.Add(p, f.offset), true
}

func (e *encoder) appendList(n *node, p unsafe.Pointer, length, depth int) error {
	if depth >= maxDepth {
		return errLeft
	}
	e.b = append(e.b, '[')
	for i := range length {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		if err := e.append(n.elem, unsafe.Add(p, uintptr(i)*n.elem.size), depth+1); err != nil {
			return err
		}
	}
	e.b = append(e.b, ']')
	return nil
}

// appendMap appends the members in the order of their keys.
func (e *encoder) appendMap(n *node, p unsafe.Pointer, depth int) (err error) {
	if depth >= maxDepth {
		return errLeft
	}
	m := reflect.NewAt(n.typ, p).Elem()
	keys := m.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	elem := reflect.New(n.elem.typ).Elem()
	e.b = append(e.b, '{')
	for i, key := range keys {
		if i > 0 {
			e.b = append(e.b, ',')
		}
		if e.b, err = appendKey(e.b, key.String()); err != nil {
			return err
		}
		elem.Set(m.MapIndex(key))
		if err := e.append(n.elem, elem.Addr().UnsafePointer(), depth+1); err != nil {
			return err
		}
	}
	e.b = append(e.b, '}')
	return nil
}
