package router

import (
	"net/http"

	"github.com/penstock-go/penstock/internal/handshake"
)

// Token returns the token of a request, for Options.Authenticate: the query parameter
// access_token, or else that of the header "Authorization: Bearer" (RFC 6750), or else the subprotocol
// that begins with "bearer.", without this prefix. It returns "" if there is none.
//
// Proxies write query parameters to their access logs. Headers are not logged, but pages in
// browsers can only set the subprotocol, which can only contain the characters of an HTTP token
// (RFC 9110, section 5.6.2). Percent-encoding in it is decoded, so that every token can be sent.
func Token(req *http.Request) string { return handshake.Token(req) }
