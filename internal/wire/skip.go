package wire

import "bytes"

// skip returns the offset after a value without validating it. It only finds the ends of strings,
// objects and arrays.
func (f input) skip(i int) (int, error) {
	depth := 0
	for i < len(f) {
		switch f[i] {
		case '"':
			if i = f.skipText(i); depth == 0 {
				return i, f.within(i)
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, nil
			}
			if depth < 0 {
				return i, nil // the end of the enclosing object or array
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i, nil
			}
		}
		i++
	}
	return i, ErrTruncated
}

// within returns an error if i is beyond the end of the frame.
func (f input) within(i int) error {
	if i > len(f) {
		return ErrTruncated
	}
	return nil
}

// skipText returns the offset after a string, or an offset beyond the frame if the string does not
// end.
func (f input) skipText(i int) int {
	i++
	for {
		n := bytes.IndexByte(f[i:], '"')
		if n < 0 {
			return len(f) + 1
		}
		i += n + 1
		if !f.escaped(i - 1) {
			return i
		}
	}
}

// escaped reports whether an odd number of backslashes precedes the byte at i.
func (f input) escaped(i int) bool {
	n := 0
	for i-1-n >= 0 && f[i-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// tailBytes is how many bytes scanTail reads at most. They suffice for a type and a meta of the
// usual size.
const tailBytes = 512

// scanTail reads the last members of the frame backwards from its end, down to the value at from. It
// reports whether the type and meta are known.
//
// For valid JSON the result is exact. The opening quote of a string is the nearest unescaped quote
// before its closing quote, because every quote inside a string is escaped and there are no
// backslashes outside strings. For invalid JSON the result may be wrong.
func (p *headParser) scanTail(from int) bool {
	if !p.whole || p.tailScanned {
		return false
	}
	p.tailScanned = true
	low := max(from, len(p.frame)-tailBytes)
	i := p.frame.spaceBack(len(p.frame), low)
	if i <= low || p.frame[i-1] != '}' {
		return false
	}
	i--
	for {
		value := p.frame.valueBack(p.frame.spaceBack(i, low), low)
		if value < 0 {
			return false
		}
		if value == from { // all members after from are read
			p.metaDone = true
			return p.typeDone
		}
		key := p.frame.keyBack(value, low)
		if key < 0 {
			return false
		}
		p.readMember(key, value)
		if p.typeDone && p.metaDone {
			return true
		}
		if i = p.frame.spaceBack(key, low); i <= low || p.frame[i-1] != ',' {
			return false
		}
		i--
	}
}

func (p *headParser) readMember(key, value int) {
	name, _, err := p.frame.key(key)
	if err != nil {
		return
	}
	switch string(name) {
	case "type":
		_, _ = p.readType(value)
	case "meta":
		_, _ = p.readMeta(value)
	}
}

// spaceBack returns the start of the white space that ends at i.
func (f input) spaceBack(i, low int) int {
	for i > low && (f[i-1] == ' ' || f[i-1] == '\n' || f[i-1] == '\t' || f[i-1] == '\r') {
		i--
	}
	return i
}

// valueBack returns the start of the value that ends at i, or -1 if it is before low.
func (f input) valueBack(i, low int) int {
	depth := 0
	for i > low {
		switch f[i-1] {
		case '"':
			if i = f.textBack(i, low); i < 0 || depth == 0 {
				return i
			}
			continue
		case '}', ']':
			depth++
		case '{', '[':
			if depth--; depth <= 0 {
				return i - 1
			}
		default:
			if depth == 0 {
				return f.scalarBack(i, low)
			}
		}
		i--
	}
	return -1
}

// textBack returns the start of the string that ends at i, or -1 if it is before low.
func (f input) textBack(i, low int) int {
	for i--; i > low; i-- {
		if f[i-1] == '"' && !f.escaped(i-1) {
			return i - 1
		}
	}
	return -1
}

func (f input) scalarBack(i, low int) int {
	for i > low {
		switch f[i-1] {
		case ':', ',', '{', '[', ' ', '\n', '\t', '\r', '"', '}', ']':
			return i
		}
		i--
	}
	return -1
}

// keyBack returns the start of the key of the value at i, or -1 if it is before low.
func (f input) keyBack(i, low int) int {
	i = f.spaceBack(i, low)
	if i <= low || f[i-1] != ':' {
		return -1
	}
	i = f.spaceBack(i-1, low)
	if i <= low || f[i-1] != '"' {
		return -1
	}
	return f.textBack(i, low)
}
