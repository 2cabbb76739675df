package jsonplan

import (
	"reflect"
	"strconv"
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
		if next >= len(o.fields) || !s.literal(o.fields[next].prefix[1:]) {
			name := s.name()
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

// readInt reads an integer of a number of bits, from 8 to 64. It fails for numbers out of range and for
// those with a fraction or an exponent.
func (s *scanner) readInt(bits int) int64 {
	c := s.peek()
	negative := c == '-'
	if negative {
		s.at++
	} else if c == 'n' {
		return s.nullNumber()
	}
	n := s.digits()
	limit := uint64(1) << (bits - 1)
	switch {
	case negative && n <= limit:
		return -int64(n)
	case !negative && n < limit:
		return int64(n)
	default:
		s.fail()
		return 0
	}
}

// readUint is readInt for unsigned integers.
func (s *scanner) readUint(bits int) uint64 {
	if s.peek() == 'n' {
		return uint64(s.nullNumber())
	}
	n := s.digits()
	if bits < 64 && n>>bits != 0 {
		s.fail()
		return 0
	}
	return n
}

// readFloat reads a number and returns the nearest one of 32 or 64 bits. It fails for numbers out of
// range.
func (s *scanner) readFloat(bits int) float64 {
	if s.peek() == 'n' {
		return float64(s.nullNumber())
	}
	number := s.number()
	f, err := strconv.ParseFloat(string(number), bits)
	if err != nil {
		s.fail()
		return 0
	}
	return f
}

// quote reads the quote before a number in a string, or null. It reports whether a number follows.
func (s *scanner) quote() bool {
	if s.peek() != '"' {
		s.nullNumber()
		return false
	}
	if s.at++; s.at < len(s.text) && (s.text[s.at] == '-' || isDigit(s.text[s.at])) {
		return true
	}
	s.fail()
	return false
}

// unquote reads the quote after a number.
func (s *scanner) unquote() {
	if s.at >= len(s.text) || s.text[s.at] != '"' {
		s.fail()
		return
	}
	s.at++
}

func (s *scanner) nullNumber() int64 {
	if !s.null() {
		s.fail()
	}
	return 0
}

// digits reads an integer without a sign. What reads on fails if the number continues: neither a
// fraction nor a digit after 0 is a delimiter.
func (s *scanner) digits() (n uint64) {
	begin := s.at
	for s.at < len(s.text) && isDigit(s.text[s.at]) {
		n = 10*n + uint64(s.text[s.at]-'0')
		s.at++
		if n == 0 {
			break
		}
	}
	const maxWidth = 20 // of 1<<64 - 1, which begins with 1: the sum of 20 such digits has not passed zero if it is at least 1e19
	switch width := s.at - begin; {
	case width == 0, width > maxWidth, width == maxWidth && (s.text[begin] != '1' || n < 1e19):
		s.fail()
		return 0
	}
	return n
}

// number reads a number and returns its text.
func (s *scanner) number() []byte {
	begin, i, text := s.at, s.at, s.text
	if i < len(text) && text[i] == '-' {
		i++
	}
	if i < len(text) && text[i] == '0' {
		i++
	} else if i = skipDigits(text, i); i < 0 {
		s.fail()
		return nil
	}
	if i < len(text) && text[i] == '.' {
		i = skipDigits(text, i+1)
	}
	if i >= 0 && i < len(text) && text[i]|0x20 == 'e' {
		if i++; i < len(text) && (text[i] == '+' || text[i] == '-') {
			i++
		}
		i = skipDigits(text, i)
	}
	if i < 0 {
		s.fail()
		return nil
	}
	s.at = i
	return text[begin:i]
}

// skipDigits returns the index after one or more digits, or -1.
func skipDigits(text []byte, at int) int {
	i := at
	for i < len(text) && isDigit(text[i]) {
		i++
	}
	if i == at {
		return -1
	}
	return i
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
