package wsconn

import "unicode/utf8"

var errInvalidUTF8 = &violation{codeInvalidPayload, "invalid UTF-8"}

// A utf8Checker checks text that arrives in parts (RFC 6455, section 8.1). It fails at
// the first byte that no continuation can make valid.
type utf8Checker struct {
	skip    bool // nothing is checked
	pending [utf8.UTFMax]byte
	n       int // of pending: the beginning of a code point
}

// check returns false if the text is invalid up to the end of p.
func (u *utf8Checker) check(p []byte) bool {
	if u.skip {
		return true
	}
	for u.n > 0 && len(p) > 0 {
		u.pending[u.n] = p[0]
		u.n++
		p = p[1:]
		if !utf8.FullRune(u.pending[:u.n]) {
			continue
		}
		if !utf8.Valid(u.pending[:u.n]) {
			return false
		}
		u.n = 0
	}
	whole := len(p)
	for back := 1; back < utf8.UTFMax && back <= len(p); back++ {
		if tail := p[len(p)-back:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				whole -= back
			}
			break
		}
	}
	u.n += copy(u.pending[u.n:], p[whole:])
	return utf8.Valid(p[:whole])
}

// complete returns false if the text ends inside a code point.
func (u *utf8Checker) complete() bool { return u.n == 0 }
