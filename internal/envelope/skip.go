package envelope

import "bytes"

// skip passes over a value without checking it: it looks only for where strings
// and containers end.
func (f frame) skip(i int) (int, error) {
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
				return i, nil // the end of what the value stands in
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

// within is an error if i is not in the frame any more.
func (f frame) within(i int) error {
	if i > len(f) {
		return ErrTruncated
	}
	return nil
}

// skipText returns the offset behind a string, or one that is out of the frame.
func (f frame) skipText(i int) int {
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

// escaped reports whether the byte at i stands behind an odd number of
// backslashes.
func (f frame) escaped(i int) bool {
	n := 0
	for i-1-n >= 0 && f[i-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// lookBehindBytes is how far from a frame's end lookBehind looks: enough for a
// type, and for a meta of the usual size.
const lookBehindBytes = 512

// lookBehind reads the frame's last members from its end, as long as they come
// after the value at from. It reports whether there is no more to know.
//
// In a valid text this is exact: a closing quote's partner is the nearest quote
// before it that no backslash escapes, since inside a string every quote is
// escaped and outside there is no backslash. In any other text it may be wrong.
func (p *headParser) lookBehind(from int) bool {
	if !p.whole || p.behind {
		return false
	}
	p.behind = true
	low := max(from, len(p.frame)-lookBehindBytes)
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
		if value == from { // all members have been seen
			p.idDone = true
			return p.typeDone
		}
		key := p.frame.keyBack(value, low)
		if key < 0 {
			return false
		}
		p.readBehind(key, value)
		if p.typeDone && p.idDone {
			return true
		}
		if i = p.frame.spaceBack(key, low); i <= low || p.frame[i-1] != ',' {
			return false
		}
		i--
	}
}

func (p *headParser) readBehind(key, value int) {
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

// spaceBack returns the end of what stands before the white space that ends at i.
func (f frame) spaceBack(i, low int) int {
	for i > low && (f[i-1] == ' ' || f[i-1] == '\n' || f[i-1] == '\t' || f[i-1] == '\r') {
		i--
	}
	return i
}

// valueBack returns where the value that ends at i begins, or -1.
func (f frame) valueBack(i, low int) int {
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

// textBack returns where the string that ends at i begins, or -1.
func (f frame) textBack(i, low int) int {
	for i--; i > low; i-- {
		if f[i-1] == '"' && !f.escaped(i-1) {
			return i - 1
		}
	}
	return -1
}

func (f frame) scalarBack(i, low int) int {
	for i > low {
		switch f[i-1] {
		case ':', ',', '{', '[', ' ', '\n', '\t', '\r', '"', '}', ']':
			return i
		}
		i--
	}
	return -1
}

// keyBack returns where the key of the value at i begins, or -1.
func (f frame) keyBack(i, low int) int {
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
