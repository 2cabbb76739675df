package jsonplan

import (
	"encoding/base64"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"
)

// append appends the JSON of the value at p. quoted means that a number is in a string.
func (n *node) append(b []byte, p unsafe.Pointer, depth int, quoted bool) ([]byte, error) {
	if n.library {
		return appendLibrary(b, n.typ, p, depth)
	}
	switch n.kind {
	case kindString:
		return AppendString(b, *(*string)(p)), nil
	case kindInt:
		return closeQuote(strconv.AppendInt(openQuote(b, quoted), n.int(p), 10), quoted), nil
	case kindStruct:
		return n.object.append(b, p, depth)
	case kindBool:
		return strconv.AppendBool(b, *(*bool)(p)), nil
	case kindUint:
		return closeQuote(strconv.AppendUint(openQuote(b, quoted), n.uint(p), 10), quoted), nil
	case kindFloat:
		b, err := appendFloat(openQuote(b, quoted), n.float(p), int(n.bits))
		return closeQuote(b, quoted), err
	case kindBytes:
		return appendBytes(b, *(*[]byte)(p)), nil
	case kindByteArray:
		return appendBytes(b, unsafe.Slice((*byte)(p), n.size)), nil
	case kindTime:
		return appendTime(b, *(*time.Time)(p))
	case kindPointer:
		elem := *(*unsafe.Pointer)(p)
		if elem == nil {
			return append(b, "null"...), nil
		}
		if depth == maxNesting {
			return b, errLibrary
		}
		return n.elem.append(b, elem, depth+1, quoted) // a pointer may point to itself
	case kindSlice:
		list := (*sliceHeader)(p)
		return n.elem.appendList(b, list.data, list.len, depth)
	case kindArray:
		return n.elem.appendList(b, p, n.typ.Len(), depth)
	case kindMap:
		return n.appendMap(b, p, depth)
	default:
		return appendLibrary(b, n.typ, p, depth)
	}
}

func openQuote(b []byte, quoted bool) []byte {
	if quoted {
		return append(b, '"')
	}
	return b
}

func closeQuote(b []byte, quoted bool) []byte { return openQuote(b, quoted) }

func (n *node) int(p unsafe.Pointer) int64 {
	switch n.bits {
	case 64:
		return *(*int64)(p)
	case 32:
		return int64(*(*int32)(p))
	case 16:
		return int64(*(*int16)(p))
	default:
		return int64(*(*int8)(p))
	}
}

func (n *node) uint(p unsafe.Pointer) uint64 {
	switch n.bits {
	case 64:
		return *(*uint64)(p)
	case 32:
		return uint64(*(*uint32)(p))
	case 16:
		return uint64(*(*uint16)(p))
	default:
		return uint64(*(*uint8)(p))
	}
}

func (n *node) float(p unsafe.Pointer) float64 {
	if n.bits == 64 {
		return *(*float64)(p)
	}
	return float64(*(*float32)(p))
}

// append appends an object. The comma before its first member becomes the opening brace.
func (o *object) append(b []byte, p unsafe.Pointer, depth int) ([]byte, error) {
	if depth == maxNesting {
		return b, errLibrary
	}
	begin := len(b)
	var err error
	for i := range o.fields {
		f := &o.fields[i]
		at := f.at(p)
		if at == nil || (f.omitZero || f.omitEmpty) && f.isOmitted(at) {
			continue
		}
		before := len(b)
		b = append(b, f.prefix...)
		if b, err = f.node.append(b, at, depth+1, f.quoted); err != nil {
			return b, err
		}
		if f.omitEmpty && isEmpty(b[before+len(f.prefix):]) {
			b = b[:before]
		}
	}
	if len(b) == begin {
		return append(b, "{}"...), nil
	}
	b[begin] = '{'
	return append(b, '}'), nil
}

// at returns a pointer to the field of a struct, or nil if an embedded pointer on the way to it is nil.
func (f *field) at(p unsafe.Pointer) unsafe.Pointer {
	for i := range f.path {
		if p = *(*unsafe.Pointer)(unsafe.Add(p, f.path[i].offset)); p == nil {
			return nil
		}
	}
	return unsafe.Add(p, f.offset)
}

// isOmitted reports whether an option omits the field at p. omitempty also omits what is encoded as an empty
// value.
func (f *field) isOmitted(p unsafe.Pointer) bool {
	return f.omitZero && f.isZero(p) || f.omitEmpty && f.isEmpty(p)
}

// isEmpty reports whether the field at p is certainly encoded as an empty value.
func (f *field) isEmpty(p unsafe.Pointer) bool {
	switch f.node.kind {
	case kindString:
		return *(*string)(p) == ""
	case kindBytes, kindSlice:
		return (*sliceHeader)(p).len == 0
	case kindByteArray, kindArray:
		return f.node.typ.Len() == 0
	case kindPointer:
		return *(*unsafe.Pointer)(p) == nil
	case kindMap:
		return *(*unsafe.Pointer)(p) == nil || reflect.NewAt(f.node.typ, p).Elem().Len() == 0
	default:
		return false
	}
}

// isZero reports whether omitzero omits the field at p.
func (f *field) isZero(p unsafe.Pointer) bool {
	switch {
	case f.isZeroer:
		return isZeroOf(reflect.NewAt(f.node.typ, p))
	case f.node.kind == kindTime:
		return (*time.Time)(p).IsZero()
	case f.node.kind == kindString:
		return *(*string)(p) == ""
	case f.node.kind == kindBytes, f.node.kind == kindSlice, f.node.kind == kindPointer, f.node.kind == kindMap:
		return *(*unsafe.Pointer)(p) == nil
	default:
		return reflect.NewAt(f.node.typ, p).Elem().IsZero()
	}
}

// isZeroOf calls the method IsZero of the type that pointer points to, or of the pointer.
func isZeroOf(pointer reflect.Value) bool {
	if method, ok := reflect.TypeAssert[isZeroer](pointer); ok {
		return method.IsZero()
	}
	return pointer.Elem().IsNil() || pointer.Elem().Interface().(isZeroer).IsZero()
}

// appendList appends elements of the node's type.
func (n *node) appendList(b []byte, p unsafe.Pointer, length, depth int) (_ []byte, err error) {
	if depth == maxNesting {
		return b, errLibrary
	}
	b = append(b, '[')
	for i := range length {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = n.append(b, unsafe.Add(p, uintptr(i)*n.size), depth+1, false); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

// A member is a member of a map: its name, and where its value is.
type member struct {
	name string
	at   int
}

// appendMap appends the members in the order of their names.
func (n *node) appendMap(b []byte, p unsafe.Pointer, depth int) (_ []byte, err error) {
	if depth == maxNesting {
		return b, errLibrary
	}
	all := reflect.NewAt(n.typ, p).Elem()
	if all.Len() == 0 {
		return append(b, "{}"...), nil
	}
	elems := reflect.MakeSlice(reflect.SliceOf(n.elem.typ), all.Len(), all.Len())
	members := make([]member, 0, all.Len())
	key := reflect.New(n.typ.Key()).Elem()
	for each := all.MapRange(); each.Next(); {
		key.SetIterKey(each)
		elems.Index(len(members)).SetIterValue(each)
		members = append(members, member{key.String(), len(members)})
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	b = append(b, '{')
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendKey(b, m.name); err != nil {
			return b, err
		}
		if b, err = n.elem.append(b, unsafe.Add(elems.UnsafePointer(), uintptr(m.at)*n.elem.size), depth+1, false); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// AppendString appends a string with quotes and escapes. Invalid UTF-8 becomes U+FFFD.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	if n := PlainASCII(s); n < len(s) {
		b = append(b, s[:n]...)
		b = appendRest(b, s[n:])
	} else {
		b = append(b, s...)
	}
	return append(b, '"')
}

// appendKey appends the name of a member and a colon. It returns errLibrary for invalid UTF-8: two
// names could become the same.
func appendKey(b []byte, name string) ([]byte, error) {
	if !utf8.ValidString(name) {
		return b, errLibrary
	}
	return append(AppendString(b, name), ':'), nil
}

// appendRest appends text that may need escapes.
func appendRest(b []byte, s string) []byte {
	done := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < ' ' || c == '"' || c == '\\' {
				b = append(b, s[done:i]...)
				b = appendEscape(b, c)
				i++
				done = i
			} else {
				i += PlainASCII(s[i:])
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			b = append(b, s[done:i]...)
			b = append(b, "\ufffd"...)
			done = i + 1
		}
		i += size
	}
	return append(b, s[done:]...)
}

func appendEscape(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\b':
		return append(b, `\b`...)
	case '\f':
		return append(b, `\f`...)
	case '\n':
		return append(b, `\n`...)
	case '\r':
		return append(b, `\r`...)
	case '\t':
		return append(b, `\t`...)
	default:
		const hex = "0123456789abcdef"
		return append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
	}
}

// appendFloat appends a number of 32 or 64 bits. It returns errLibrary for NaN and infinities.
func appendFloat(b []byte, f float64, bits int) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return b, errLibrary
	}
	format := byte('f')
	if size := math.Abs(f); size != 0 {
		if bits == 64 && (size < 1e-6 || size >= 1e21) || bits == 32 && (float32(size) < 1e-6 || float32(size) >= 1e21) {
			format = 'e'
		}
	}
	b = strconv.AppendFloat(b, f, format, -1, bits)
	if n := len(b); format == 'e' && string(b[n-4:n-1]) == "e-0" { // 1e-09 becomes 1e-9
		b[n-2] = b[n-1]
		b = b[:n-1]
	}
	return b, nil
}

// appendBytes appends a string in base64 (RFC 4648, section 4, with padding).
func appendBytes(b, data []byte) []byte {
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, data)
	return append(b, '"')
}

// appendTime appends a time in RFC 3339 format with nanoseconds. It returns errLibrary for a year
// or a time zone that the format cannot represent.
func appendTime(b []byte, t time.Time) ([]byte, error) {
	begin := len(b) + 1
	b = append(b, '"')
	b = t.AppendFormat(b, time.RFC3339Nano)
	text := b[begin:]
	if text[len("9999")] != '-' {
		return b, errLibrary
	}
	if text[len(text)-1] != 'Z' {
		sign := text[len(text)-len("Z07:00")]
		if isDigit(sign) || twoDigits(text[len(text)-len("07:00"):]) >= 24 {
			return b, errLibrary
		}
	}
	return append(b, '"'), nil
}

// isEmpty reports whether a value is one that the option omitempty omits: null, "", [] or {}.
func isEmpty(value []byte) bool {
	switch string(value) {
	case `null`, `""`, `[]`, `{}`:
		return true
	}
	return false
}
