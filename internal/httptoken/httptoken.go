// Package httptoken recognizes tokens of HTTP.
package httptoken

import "strings"

// IsValid reports whether s is an HTTP token (RFC 9110, section 5.6.2).
func IsValid(s string) bool {
	const others = "!#$%&'*+-.^_`|~"
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		isAlphanumeric := r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		return !isAlphanumeric && !strings.ContainsRune(others, r)
	})
}
