package redis

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/penstock-go/penstock/limit"
)

// maxPartBytes bounds the parts of a name. A name contains a longer part as its first
// maxPartBytes/2 bytes and a digest.
const maxPartBytes = 128

// keyName joins a prefix and parts with colons. The parts, which clients may choose, cannot
// contain a colon or the braces of a hash tag.
func keyName(prefix string, parts []string) string {
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
			escape(&b, part)
			continue
		}
		escape(&b, part[:maxPartBytes/2])
		digest := sha256.Sum256([]byte(part))
		b.WriteByte('~')
		b.WriteString(hex.EncodeToString(digest[:16]))
	}
	return b.String()
}

// keyParts returns the parts of a key without the empty ones at its end.
func keyParts(key *limit.Key) []string {
	n := len(key)
	for n > 0 && key[n-1] == "" {
		n--
	}
	return key[:n]
}

// escape percent-encodes s (RFC 3986, section 2.1): separators, control characters, spaces and
// the escape characters.
func escape(b *strings.Builder, s string) {
	const hexDigits = "0123456789ABCDEF"
	plain := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c <= ' ', c == 0x7f, c == ':', c == '{', c == '}', c == '~', c == '%':
			b.WriteString(s[plain:i])
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
			plain = i + 1
		}
	}
	b.WriteString(s[plain:])
}
