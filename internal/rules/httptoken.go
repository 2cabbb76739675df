package rules

import "strings"

// IsToken reports whether s is an HTTP token (RFC 9110, section 5.6.2).
func IsToken(s string) bool {
	const others = "!#$%&'*+-.^_`|~"
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		isAlphanumeric := r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		return !isAlphanumeric && !strings.ContainsRune(others, r)
	})
}
