package jsonplan

import (
	"encoding/base64"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// appendString appends a string with quotes and escapes.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	if n := plainASCIIString(s); n < len(s) {
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
	return append(appendString(b, name), ':'), nil
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
				i += plainASCIIString(s[i:])
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

// plainASCIIString is plainASCII for a string.
func plainASCIIString(s string) int {
	i := 0
	for ; i+8 <= len(s); i += 8 {
		w := s[i : i+8]
		x := uint64(w[0]) | uint64(w[1])<<8 | uint64(w[2])<<16 | uint64(w[3])<<24 | // one load
			uint64(w[4])<<32 | uint64(w[5])<<40 | uint64(w[6])<<48 | uint64(w[7])<<56
		if special(x) != 0 {
			break
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			break
		}
	}
	return i
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
