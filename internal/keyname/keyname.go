// Package keyname names the buckets and permits of remote stores, so that no two keys share a name,
// whatever their parts contain.
package keyname

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/penstock-go/penstock/limit"
)

// maxPartBytes bounds the parts of a name. A name contains a longer part as its first
// maxPartBytes/2 bytes and a digest.
const maxPartBytes = 128

// Join joins a prefix and parts with colons. The parts, which clients may choose, cannot
// contain a colon or the braces of a hash tag.
func Join(prefix string, parts []string) string {
	var b strings.Builder
	size := len(prefix)
	for _, part := range parts {
		size += 1 + len(part)
	}
	b.Grow(size)
	b.WriteString(prefix)
	for _, part := range parts {
		b.WriteByte(':')
		if len(part) <= maxPartBytes {
			escape(&b, part, false)
			continue
		}
		escape(&b, part[:maxPartBytes/2], false)
		writeDigest(&b, part)
	}
	return b.String()
}

// JoinASCII is [Join] for stores of text: the parts also cannot contain a quotation mark, a backslash
// or a byte that is not ASCII. With at most maxPartBytes for each part, the name of a [limit.Key]
// with a prefix from [ASCII] is shorter than 700 bytes.
func JoinASCII(prefix string, parts []string) string {
	var b strings.Builder
	b.Grow(len(prefix) + 64)
	b.WriteString(prefix)
	for _, part := range parts {
		b.WriteByte(':')
		writeASCII(&b, part)
	}
	return b.String()
}

// ASCII returns a part as [JoinASCII] writes it.
func ASCII(part string) string {
	var b strings.Builder
	writeASCII(&b, part)
	return b.String()
}

func writeASCII(b *strings.Builder, part string) {
	if escapedLen(part, true) <= maxPartBytes {
		escape(b, part, true)
		return
	}
	escape(b, part[:maxPartBytes/6], true) // at most half of the maximum when escaped
	writeDigest(b, part)
}

// Parts returns the parts of a key without the empty ones at its end.
func Parts(key *limit.Key) []string {
	n := len(key)
	for n > 0 && key[n-1] == "" {
		n--
	}
	return key[:n]
}

// writeDigest writes what distinguishes parts with the same beginning. The tilde is escaped in
// other parts.
func writeDigest(b *strings.Builder, part string) {
	digest := sha256.Sum256([]byte(part))
	b.WriteByte('~')
	b.WriteString(hex.EncodeToString(digest[:16]))
}

// escape percent-encodes (RFC 3986, section 2.1) the bytes of s that are special, and if ascii is
// set, including those that are not ASCII or that JSON would escape.
func escape(b *strings.Builder, s string, ascii bool) {
	const hexDigits = "0123456789ABCDEF"
	plain := 0
	for i := range len(s) {
		if c := s[i]; isSpecial(c, ascii) {
			b.WriteString(s[plain:i])
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
			plain = i + 1
		}
	}
	b.WriteString(s[plain:])
}

func escapedLen(s string, ascii bool) int {
	n := len(s)
	for i := range len(s) {
		if isSpecial(s[i], ascii) {
			n += 2
		}
	}
	return n
}

// isSpecial reports separators, control characters, spaces and the escape characters.
func isSpecial(c byte, ascii bool) bool {
	switch {
	case c <= ' ', c == 0x7f, c == ':', c == '{', c == '}', c == '~', c == '%':
		return true
	default:
		return ascii && (c > 0x7f || c == '"' || c == '\\')
	}
}
