package clientip

import (
	"iter"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/internal/rules"
)

// A forwardedElement describes the request as one proxy received it.
type forwardedElement struct {
	client netip.Addr // the parameter for; invalid if missing, malformed, obfuscated or unknown
	proto  string     // the parameter proto; "" if missing
}

// forwardedElements yields the elements of the header Forwarded (RFC 7239, section 4), last
// one first. A malformed element yields the zero value; empty elements are skipped (RFC 9110,
// section 5.6.1.2).
//
// The header is split from its end. A client that sends an opening quote without a closing one
// then invalidates only its own element, and not the one that a proxy appends after it: read
// from the end, a well-formed element begins at the same comma, whatever precedes it.
func forwardedElements(header http.Header) iter.Seq[forwardedElement] {
	return func(yield func(forwardedElement) bool) {
		for _, value := range slices.Backward(header.Values("Forwarded")) {
			for more := true; more; {
				var text string
				value, text, more = cutLast(value, lastUnquotedComma(value))
				if text = strings.Trim(text, " \t"); text != "" && !yield(parseForwarded(text)) {
					return
				}
			}
		}
	}
}

// lastUnquotedComma returns the index of the last comma outside of a quoted string, or -1. The
// end of s must be outside of a quoted string.
func lastUnquotedComma(s string) int {
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case s[i] == ',' && !quoted:
			return i
		case s[i] == '"':
			before := strings.TrimRight(s[:i], `\`)
			if backslashes := i - len(before); backslashes%2 == 0 {
				quoted = !quoted
			}
			i = len(before)
		}
	}
	return -1
}

func parseForwarded(s string) forwardedElement {
	var element forwardedElement
	var hasFor, hasProto bool
	for more := true; more; {
		var name, value string
		var ok bool
		if name, value, s, more, ok = forwardedPair(s); !ok {
			return forwardedElement{}
		}
		switch {
		case name == "for" && !hasFor:
			element.client, hasFor = parseNode(value), true
		case name == "proto" && !hasProto:
			element.proto, hasProto = value, true
		case name == "for", name == "proto":
			return forwardedElement{} // a parameter must not occur twice
		}
	}
	return element
}

// forwardedPair parses the pair at the start of s, up to the next semicolon, and returns the
// remaining text. The name is in lower case, and "" if the pair is empty, which the grammar
// allows.
func forwardedPair(s string) (name, value, rest string, more, ok bool) {
	s = strings.TrimLeft(s, " \t")
	if s == "" || s[0] == ';' {
		rest, more = strings.CutPrefix(s, ";")
		return "", "", rest, more, true
	}
	name, s, ok = strings.Cut(s, "=")
	if !ok || !rules.IsToken(name) {
		return "", "", "", false, false
	}
	if strings.HasPrefix(s, `"`) {
		value, s, ok = unquote(s)
	} else {
		end := strings.IndexAny(s, "; \t")
		if end < 0 {
			end = len(s)
		}
		value, s = s[:end], s[end:]
		ok = rules.IsToken(value)
	}
	s = strings.TrimLeft(s, " \t")
	rest, more = strings.CutPrefix(s, ";")
	return strings.ToLower(name), value, rest, more, ok && (more || s == "")
}

// unquote returns the content of the quoted-string (RFC 9110, section 5.6.4) at the start of
// s, and the text after it.
func unquote(s string) (content, rest string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}

// parseNode parses a node identifier (RFC 7239, section 6). It returns the zero netip.Addr for
// the word unknown and for obfuscated identifiers.
func parseNode(s string) netip.Addr {
	bracketed := strings.HasPrefix(s, "[")
	host, port := s, ""
	if end := strings.IndexByte(s, ']'); bracketed && end > 0 {
		host, port = s[1:end], s[end+1:]
	} else if end := strings.IndexByte(s, ':'); end >= 0 {
		host, port = s[:end], s[end:]
	}
	if port != "" && (port[0] != ':' || !isNodePort(port[1:])) {
		return netip.Addr{}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Is6() != bracketed || addr.Zone() != "" {
		return netip.Addr{}
	}
	return addr.Unmap()
}

// isNodePort reports whether s is one to five digits, or an underscore and an identifier.
func isNodePort(s string) bool {
	name, hidden := strings.CutPrefix(s, "_")
	limit := 5
	if hidden {
		limit = len(name)
	}
	if name == "" || len(name) > limit {
		return false
	}
	for _, c := range []byte(name) {
		digit := c >= '0' && c <= '9'
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c == '.' || c == '_' || c == '-'
		if !digit && (!hidden || !letter) {
			return false
		}
	}
	return true
}
