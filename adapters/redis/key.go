package redis

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// maxPartBytes is what a part of a name may have before only its beginning is
// kept, and a digest of all of it.
const maxPartBytes = 128

// name joins parts with colons. What a user may choose can forge neither a colon nor
// the braces of a hash tag.
func name(prefix string, parts []string) string {
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

// parts drops the empty ones at a key's end.
func parts(key *ratelimit.Key) []string {
	n := len(key)
	for n > 0 && key[n-1] == "" {
		n--
	}
	return key[:n]
}

// escape writes s as in a URL (RFC 3986, section 2.1): what separates, what cannot be
// read, and what escapes.
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
