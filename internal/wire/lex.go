package wire

import (
	"encoding/binary"
	"encoding/json"
	"math/bits"
)

// An input is JSON text. Its methods take the offset at which an element begins and return the
// offset after it.
type input []byte

// unexpected returns the error for a wrong or missing byte at i.
func (f input) unexpected(i int) error {
	if i >= len(f) {
		return ErrTruncated
	}
	return &SyntaxError{Offset: i}
}

func (f input) space(i int) int {
	for i < len(f) && (f[i] == ' ' || f[i] == '\n' || f[i] == '\t' || f[i] == '\r') {
		i++
	}
	return i
}

// trimmed returns the end of what is before the white space that ends at end.
func (f input) trimmed(end int) int {
	for end > 0 && (f[end-1] == ' ' || f[end-1] == '\n' || f[end-1] == '\t' || f[end-1] == '\r') {
		end--
	}
	return end
}

// expect skips white space and requires the byte c.
func (f input) expect(i int, c byte) (int, error) {
	i = f.space(i)
	if i >= len(f) || f[i] != c {
		return i, f.unexpected(i)
	}
	return i + 1, nil
}

func (f input) text(i int) (int, error) {
	i, err := f.expect(i, '"')
	for err == nil {
		i = f.plain(i)
		switch {
		case i >= len(f) || f[i] < ' ':
			return i, f.unexpected(i)
		case f[i] == '"':
			return i + 1, nil
		default:
			i, err = f.escape(i)
		}
	}
	return i, err
}

// plain returns the offset of the next quote, backslash or control character. It tests eight bytes
// at a time with Mycroft's test for a byte below n (Warren, Hacker's Delight, section 6-1).
func (f input) plain(i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(f); i += 8 {
		w := binary.LittleEndian.Uint64(f[i:])
		quote, slash := w^ones*'"', w^ones*'\\'
		found := ((w - ones*' ') &^ w) | ((quote - ones) &^ quote) | ((slash - ones) &^ slash)
		if found &= highs; found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(f) && f[i] >= ' ' && f[i] != '"' && f[i] != '\\' {
		i++
	}
	return i
}

func (f input) escape(i int) (int, error) {
	i++
	if i >= len(f) {
		return i, ErrTruncated
	}
	switch f[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1, nil
	case 'u':
		for range 4 {
			if i++; i >= len(f) || !isHex(f[i]) {
				return i, f.unexpected(i)
			}
		}
		return i + 1, nil
	default:
		return i, f.unexpected(i)
	}
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// unquoted validates a string and returns its content.
func (f input) unquoted(i int) (content []byte, end int, err error) {
	if i < len(f) && f[i] == '"' {
		if end = f.plain(i + 1); end < len(f) && f[end] == '"' {
			return f[i+1 : end], end + 1, nil
		}
	}
	if end, err = f.text(i); err != nil {
		return nil, end, err
	}
	return unescape(f[i:end]), end, nil
}

func unescape(quoted []byte) []byte {
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return nil
	}
	return []byte(s)
}

func (f input) scalar(i int) (int, error) {
	if i >= len(f) {
		return i, ErrTruncated
	}
	switch f[i] {
	case 't':
		return f.literal(i, "true")
	case 'f':
		return f.literal(i, "false")
	case 'n':
		return f.literal(i, "null")
	default:
		return f.number(i)
	}
}

func (f input) literal(i int, expected string) (int, error) {
	for j := range len(expected) {
		if i+j >= len(f) || f[i+j] != expected[j] {
			return i + j, f.unexpected(i + j)
		}
	}
	return i + len(expected), nil
}

// number follows RFC 8259, section 6.
func (f input) number(i int) (int, error) {
	if i < len(f) && f[i] == '-' {
		i++
	}
	var err error
	if i < len(f) && f[i] == '0' {
		i++
	} else if i, err = f.digits(i); err != nil {
		return i, err
	}
	if i < len(f) && f[i] == '.' {
		if i, err = f.digits(i + 1); err != nil {
			return i, err
		}
	}
	if i < len(f) && (f[i] == 'e' || f[i] == 'E') {
		if i++; i < len(f) && (f[i] == '+' || f[i] == '-') {
			i++
		}
		return f.digits(i)
	}
	return i, nil
}

// digits requires at least one digit.
func (f input) digits(i int) (int, error) {
	start := i
	for i < len(f) && f[i] >= '0' && f[i] <= '9' {
		i++
	}
	if i == start {
		return i, f.unexpected(i)
	}
	return i, nil
}
