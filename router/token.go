package router

import (
	"net/http"
	"strings"
)

// bearerPrefix marks the subprotocol that carries a token: a browser's page can
// set no header of a handshake but this one.
const bearerPrefix = "bearer."

// Token returns the token that a client sent with its request, for
// Options.Authenticate: the query parameter access_token, or a subprotocol
// "bearer." followed by the token. It returns "" if there is neither.
//
// A query parameter ends up in the access logs of proxies; a subprotocol does
// not, but can hold only the characters of an HTTP token (RFC 9110, section
// 5.6.2).
func Token(req *http.Request) string {
	if token := req.URL.Query().Get("access_token"); token != "" {
		return token
	}
	for _, p := range offeredSubprotocols(req) {
		if token, ok := strings.CutPrefix(p, bearerPrefix); ok {
			return token
		}
	}
	return ""
}

// offeredSubprotocols returns what the client offers, in its order.
func offeredSubprotocols(req *http.Request) []string {
	var offered []string
	for _, header := range req.Header.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(header, ",") {
			if p = strings.TrimSpace(p); p != "" {
				offered = append(offered, p)
			}
		}
	}
	return offered
}

// isToken is RFC 9110, section 5.6.2.
func isToken(s string) bool {
	const others = "!#$%&'*+-.^_`|~"
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		isAlphanumeric := r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		return !isAlphanumeric && !strings.ContainsRune(others, r)
	})
}
