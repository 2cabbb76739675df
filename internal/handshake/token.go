package handshake

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// BearerPrefix marks the subprotocol that contains a token: the only header of a handshake
// that a page in a browser can set.
const BearerPrefix = "bearer."

// Token returns the token of a request as router.Token documents it.
func Token(req *http.Request) string {
	if token := req.URL.Query().Get("access_token"); token != "" {
		return token
	}
	if scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") && token != "" {
		return strings.TrimSpace(token)
	}
	for _, p := range OfferedSubprotocols(req) {
		if token, ok := strings.CutPrefix(p, BearerPrefix); ok {
			if decoded, err := url.PathUnescape(token); err == nil {
				return decoded
			}
			return token
		}
	}
	return ""
}

// OfferedSubprotocols returns the subprotocols that the client offers, in its order.
func OfferedSubprotocols(req *http.Request) []string {
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

// SelectSubprotocol returns the first supported subprotocol that is offered. Without one, it returns the
// entry that carries the token, because browsers close a connection whose server selects none of the
// offered subprotocols. It returns "" if there is neither.
func SelectSubprotocol(supported, offered []string) string {
	for _, p := range supported {
		if slices.Contains(offered, p) {
			return p
		}
	}
	for _, p := range offered {
		if strings.HasPrefix(p, BearerPrefix) {
			return p
		}
	}
	return ""
}
