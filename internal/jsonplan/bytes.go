package jsonplan

import (
	"encoding/base64"
	"time"
)

// readBytes reads a string in base64 (RFC 4648, section 4, with padding). It fails for strings that
// contain escapes. It returns nil for null and only then.
func (s *scanner) readBytes() []byte {
	raw, ok := s.simple()
	if !ok {
		return nil
	}
	b := make([]byte, base64.StdEncoding.DecodedLen(len(raw)))
	n, err := base64.StdEncoding.Decode(b, raw)
	if err != nil {
		s.fail()
	}
	return b[:n]
}

// readByteArray is readBytes for an array, which it fills. It fails if the length differs.
func (s *scanner) readByteArray(array []byte) {
	clear(array)
	raw, ok := s.simple()
	if !ok {
		return
	}
	var buffer [512]byte
	b, err := base64.StdEncoding.AppendDecode(buffer[:0], raw)
	if err != nil || len(b) != len(array) {
		s.fail()
	}
	copy(array, b)
}

// readTime reads a time in RFC 3339 format. It fails for strings that contain escapes.
func (s *scanner) readTime() (t time.Time) {
	raw, ok := s.simple()
	if !ok {
		return time.Time{}
	}
	if err := t.UnmarshalText(raw); err != nil || !isRFC3339(raw) {
		s.fail()
		return time.Time{}
	}
	return t
}

// isRFC3339 reports whether text has the syntax of RFC 3339 where package time is more lenient.
// It is a time for package time.
func isRFC3339(text []byte) bool {
	const hour, second = len("2006-01-02T"), len("2006-01-02T15:04:05")
	if text[hour+1] == ':' || text[second] == ',' {
		return false
	}
	if text[len(text)-1] == 'Z' {
		return true
	}
	return twoDigits(text[len(text)-len("07:00"):]) < 24 && twoDigits(text[len(text)-len("00"):]) < 60
}

// twoDigits returns the number of two digits with which text begins.
func twoDigits(text []byte) int { return 10*int(text[0]-'0') + int(text[1]-'0') }

// simple reads a string without escapes. It returns false for null and after a failure. The result
// is part of the text.
func (s *scanner) simple() (raw []byte, ok bool) {
	if s.peek() != '"' {
		s.nullString()
		return nil, false
	}
	raw, escaped := s.raw(s.at+1, s.at+1)
	if escaped {
		s.fail()
	}
	return raw, !s.failed
}
