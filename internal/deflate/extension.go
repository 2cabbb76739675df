package deflate

import "strings"

// An extension is one offer of Sec-WebSocket-Extensions.
type extension struct {
	name   string
	params []extensionParam
}

// An extensionParam is a parameter of an offer. Without a value, value is "".
type extensionParam struct{ name, value string }

// parseExtensions parses an extension-list (RFC 6455, section 9.1). Names are in lower case,
// and values without quotes. ok is false if any part of the list is malformed.
func parseExtensions(header string) (list []extension, ok bool) {
	l := headerLexer{header}
	for {
		l.space()
		if l.rest == "" {
			return list, true
		}
		if l.skip(',') { // of an empty element (RFC 9110, section 5.6.1.2)
			continue
		}
		e, ok := l.extension()
		if !ok || l.rest != "" && !l.skip(',') {
			return nil, false
		}
		list = append(list, e)
	}
}

// A headerLexer reads what is left of a header's value.
type headerLexer struct{ rest string }

// extension reads an extension and the whitespace behind it.
func (l *headerLexer) extension() (e extension, ok bool) {
	if e.name, ok = l.token(); !ok {
		return e, false
	}
	for l.space(); l.skip(';'); l.space() {
		l.space()
		var p extensionParam
		if p.name, ok = l.token(); !ok {
			return e, false
		}
		if l.space(); l.skip('=') {
			l.space()
			if p.value, ok = l.value(); !ok {
				return e, false
			}
		}
		e.params = append(e.params, extensionParam{strings.ToLower(p.name), p.value})
	}
	e.name = strings.ToLower(e.name)
	return e, true
}

// value reads a token or a quoted-string, the content of which must be a token.
func (l *headerLexer) value() (string, bool) {
	if !l.skip('"') {
		return l.token()
	}
	var content strings.Builder
	for l.rest != "" {
		c := l.rest[0]
		l.rest = l.rest[1:]
		if c == '"' {
			return content.String(), content.Len() > 0
		}
		if c == '\\' && l.rest != "" {
			c, l.rest = l.rest[0], l.rest[1:]
		}
		if !isTokenByte(c) {
			return "", false
		}
		content.WriteByte(c)
	}
	return "", false
}

func (l *headerLexer) token() (string, bool) {
	n := 0
	for n < len(l.rest) && isTokenByte(l.rest[n]) {
		n++
	}
	token := l.rest[:n]
	l.rest = l.rest[n:]
	return token, n > 0
}

func (l *headerLexer) space() { l.rest = strings.TrimLeft(l.rest, " \t") }

func (l *headerLexer) skip(c byte) bool {
	if l.rest == "" || l.rest[0] != c {
		return false
	}
	l.rest = l.rest[1:]
	return true
}

// isTokenByte reports whether c is a tchar (RFC 9110, section 5.6.2).
func isTokenByte(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
