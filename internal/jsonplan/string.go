package jsonplan

import (
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// name reads the name of a member and the colon. The result may be part of the text.
func (s *scanner) name() []byte {
	if s.peek() != '"' {
		s.fail()
		return nil
	}
	begin := s.at + 1
	for i, c := range s.text[begin:] {
		if c == '"' {
			s.at = begin + i + 1
			s.colon()
			return s.text[begin : begin+i]
		}
		if c < ' ' || c == '\\' {
			break
		}
	}
	name := []byte(s.readString())
	s.colon()
	return name
}

// key reads the name of a member of a map and the colon.
func (s *scanner) key() string {
	if s.peek() != '"' {
		s.fail()
		return ""
	}
	key := s.readString()
	s.colon()
	return key
}

func (s *scanner) colon() {
	if s.peek() != ':' {
		s.fail()
		return
	}
	s.at++
}

// readString reads a string. It fails for invalid UTF-8 and for an escape that is half of a surrogate
// pair.
func (s *scanner) readString() string {
	if s.peek() != '"' {
		return s.nullString()
	}
	begin := s.at + 1
	end := begin + plainASCII(s.text[begin:])
	if end < len(s.text) && s.text[end] == '"' {
		s.at = end + 1
		return s.recent.string(s.text[begin:end])
	}
	return s.longString(begin, end)
}

func (s *scanner) nullString() string {
	if !s.null() {
		s.fail()
	}
	return ""
}

// longString reads a string that begins at begin and is plain ASCII up to index at.
func (s *scanner) longString(begin, at int) string {
	raw, escaped := s.raw(begin, at)
	if !escaped {
		return s.recent.string(raw)
	}
	return s.unescape(raw)
}

// unescape returns the text of a string that is valid but for its escapes. It fails for an escape that is
// invalid or half of a surrogate pair.
func (s *scanner) unescape(raw []byte) string {
	var b strings.Builder
	b.Grow(len(raw))
	for len(raw) > 0 {
		n := plain(raw)
		b.Write(raw[:n])
		raw = raw[n:]
		if len(raw) == 0 {
			break
		}
		r, size := unescape(raw)
		if size == 0 {
			s.fail()
			return ""
		}
		if r < utf8.RuneSelf {
			b.WriteByte(byte(r))
		} else {
			b.WriteRune(r)
		}
		raw = raw[size:]
	}
	return b.String()
}

// raw reads up to the closing quote of a string that begins at begin and is plain ASCII up to index
// at. It fails if the string is not valid UTF-8 or contains control characters. The result is part
// of the text.
func (s *scanner) raw(begin, at int) (raw []byte, escaped bool) {
	for at < len(s.text) {
		at += plain(s.text[at:])
		if at >= len(s.text) || s.text[at] < ' ' {
			break
		}
		if s.text[at] == '\\' {
			escaped = true
			at += 2
			continue
		}
		raw = s.text[begin:at]
		if !utf8.Valid(raw) {
			break
		}
		s.at = at + 1
		return raw, escaped
	}
	s.fail()
	return nil, false
}

// unescape returns the character of the escape with which text begins, and its length, which is 0
// if the escape is invalid.
func unescape(text []byte) (r rune, size int) {
	if len(text) < 2 {
		return 0, 0
	}
	switch c := text[1]; c {
	case '"', '\\', '/':
		return rune(c), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	}
	r = hex(text)
	if r < 0 {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if r = utf16.DecodeRune(r, hex(text[6:])); r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

// hex returns the value of the escape \uXXXX with which text begins, or -1.
func hex(text []byte) (r rune) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	for _, c := range text[2:6] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return -1
		}
	}
	return r
}

// The bytes of a word, and their high bits.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special returns a word in which the high bit of a byte is set if the byte in x is a control
// character, a quote or a backslash, or not ASCII. Bytes after the first of these may be set, too.
func special(x uint64) uint64 {
	return ((x - ones*' ') | ((x ^ ones*'"') - ones) | ((x ^ ones*'\\') - ones) | x) & highs
}

// plainASCII returns the length of the ASCII text before the first control character, quote or
// backslash.
func plainASCII(text []byte) int {
	i := 0
	for ; i+8 <= len(text); i += 8 {
		if found := special(binary.LittleEndian.Uint64(text[i:])); found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(text); i++ {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			break
		}
	}
	return i
}

// plain returns the length of the text before the first control character, quote or backslash.
func plain(text []byte) int {
	i := 0
	for ; i+8 <= len(text); i += 8 {
		x := binary.LittleEndian.Uint64(text[i:])
		if found := ((x - ones*' ') | ((x ^ ones*'"') - ones) | ((x ^ ones*'\\') - ones)) &^ x & highs; found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(text); i++ {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' {
			break
		}
	}
	return i
}
