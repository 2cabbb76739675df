package router

import (
	"net/http"
	"net/url"
	"strings"
)

// bearerPrefix marks the subprotocol that contains a token: the only header of a handshake
// that a page in a browser can set.
const bearerPrefix = "bearer."

// Token returns the token of a request, for Options.Authenticate: the query parameter
// access_token, or else that of the header "Authorization: Bearer" (RFC 6750), or else the subprotocol
// that begins with "bearer.", without this prefix. It returns "" if there is none.
//
// Proxies write query parameters to their access logs. Headers are not logged, but pages in browsers
// can only set the subprotocol, which can only contain the characters of an HTTP token (RFC 9110, section 5.6.2).
// Percent-encoding in it is decoded, so that every token can be sent.
func Token(req *http.Request) string {
	if token := req.URL.Query().Get("access_token"); token != "" {
		return token
	}
	if scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") && token != "" {
		return strings.TrimSpace(token)
	}
	for _, p := range offeredSubprotocols(req) {
		if token, ok := strings.CutPrefix(p, bearerPrefix); ok {
			if decoded, err := url.PathUnescape(token); err == nil {
				return decoded
			}
			return token
		}
	}
	return ""
}

// offeredSubprotocols returns the subprotocols that the client offers, in its order.
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
