package jsonplan

import (
	"encoding/binary"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner reads one JSON value. After the first failure, every method returns the zero value and false,
// and finished reports false, so its callers need not check each call. A method that reads a value returns
// the zero value for null, as the library does. The text must not change while it is read; nothing that a
// method returns refers to it unless the method says so.
type scanner struct {
	text   []byte
	at     int // index of the next byte; len(text) after a failure
	depth  int // of objects and arrays
	failed bool
	strict bool     // members without a field are a failure
	names  [][]byte // of the open objects, without a field: parts of the text, or copies
	recent recentStrings
}

// finished reports whether the scanner has read the whole text.
func (s *scanner) finished() bool {
	s.peek()
	return !s.failed && s.at == len(s.text)
}

// fail makes the scanner fail.
func (s *scanner) fail() {
	s.failed = true
	s.at = len(s.text)
}

// null reads null. It returns false, and reads nothing, if something else follows.
func (s *scanner) null() bool {
	if s.peek() != 'n' {
		return false
	}
	return s.literal("null")
}

// object reads the beginning of an object and reports whether a member follows.
func (s *scanner) object() bool { return s.open('{', '}') }

// nextMember reads what follows a member and reports whether another one follows.
func (s *scanner) nextMember() bool { return s.next('}') }

// array reads the beginning of an array and reports whether an element follows.
func (s *scanner) array() bool { return s.open('[', ']') }

// nextElement reads what follows an element and reports whether another one follows.
func (s *scanner) nextElement() bool { return s.next(']') }

func (s *scanner) open(begin, end byte) bool {
	if s.peek() != begin || s.depth == maxNesting {
		s.fail()
		return false
	}
	s.at++
	if s.peek() == end {
		s.at++
		return false
	}
	s.depth++
	return true
}

func (s *scanner) next(end byte) bool {
	switch s.peek() {
	case ',':
		s.at++
		return true
	case end:
		s.at++
		s.depth--
		return false
	default:
		s.fail()
		return false
	}
}

// peek skips space and returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		if c := s.text[s.at]; c > ' ' {
			return c
		}
	}
	return s.peekAfterSpace()
}

func (s *scanner) peekAfterSpace() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// literal reads a word, or a name with its colon. The byte after it is checked by what reads on: no delimiter continues a word.
func (s *scanner) literal(word string) bool {
	if end := s.at + len(word); end <= len(s.text) && string(s.text[s.at:end]) == word {
		s.at = end
		return true
	}
	return false
}

// readBool reads a boolean.
func (s *scanner) readBool() bool {
	switch s.peek() {
	case 't':
		if s.literal("true") {
			return true
		}
	case 'f':
		if s.literal("false") {
			return false
		}
	case 'n':
		if s.literal("null") {
			return false
		}
	}
	s.fail()
	return false
}

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
	end := begin + PlainASCII(s.text[begin:])
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
		n := Plain(raw)
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
		at += Plain(s.text[at:])
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

// recentStrings has strings that were decoded recently, so that those which clients send again and again,
// such as names and IDs, are not allocated each time. Each place holds one string.
type recentStrings [256]string

// The lengths of strings that are remembered. The runtime does not allocate shorter ones, and longer ones
// seldom occur again.
const (
	minRecent = 2
	maxRecent = 64
)

// string returns text as a string.
func (r *recentStrings) string(text []byte) string {
	n := len(text)
	if n < minRecent || n > maxRecent {
		return string(text)
	}
	var h uint64
	switch {
	case n >= 8:
		h = binary.LittleEndian.Uint64(text) ^ binary.LittleEndian.Uint64(text[n-8:])*0x9e3779b97f4a7c15
	case n >= 4:
		h = uint64(binary.LittleEndian.Uint32(text)) | uint64(binary.LittleEndian.Uint32(text[n-4:]))<<32
	default:
		h = uint64(binary.LittleEndian.Uint16(text)) | uint64(binary.LittleEndian.Uint16(text[n-2:]))<<16
	}
	place := &r[h*0x9e3779b97f4a7c15>>56]
	if *place != string(text) {
		*place = string(text)
	}
	return *place
}
