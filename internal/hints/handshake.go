package hints

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
)

// Refused explains why a check of the router has refused a request. limit is the name of an exceeded limit.
func (h *Hints) Refused(req *http.Request, check, limit string, f *failure.Failure) {
	switch {
	case f.Payload.Code == errors.Canceled: // the client has gone
	case check == "origin":
		h.Origin(req)
	case check == "handshake":
		h.Handshake(req, f)
	case check == "authentication":
		h.Authentication(f)
	case check == "limit":
		h.Limit(limit)
	}
}

// Origin explains why the page of a request may not connect.
func (h *Hints) Origin(req *http.Request) {
	h.hint(slog.LevelWarn, cause{"handshake refused: the page is of another origin", req.Header.Get("Origin")}, "origin", originRemedy(req))
}

// originRemedy says how a page of another origin may connect.
func originRemedy(req *http.Request) string {
	origin := req.Header.Get("Origin")
	switch {
	case len(req.Header.Values("Origin")) > 1:
		return "the request has several Origin headers; a proxy must pass on the one of the browser"
	case !strings.Contains(origin, "://") || strings.HasSuffix(origin, "://"): // null, file://
		return "the page has no origin of its own: load it from a server, not from a file, and not in a sandboxed frame"
	}
	return fmt.Sprintf("Options.Origins must contain %q", origin)
}

// Authentication explains what to look at if the error of Options.Authenticate is a mistake.
func (h *Hints) Authentication(f *failure.Failure) {
	h.hint(slog.LevelWarn, cause{"handshake refused: Options.Authenticate returned an error", f.Describe()}, "error",
		"if the client should be admitted, see where it sends its credentials, and whether Authenticate reads them there: router.Token finds a token in the header, the subprotocol or the query")
}

// Limit explains which limit has refused a connection.
func (h *Hints) Limit(name string) {
	h.hint(slog.LevelWarn, cause{"handshake refused: a limit is exceeded", name}, "limit",
		"if the clients are not at fault, raise it, or configure Options.TrustedProxies if all of them have the address of a proxy")
}

// Handshake explains why a request is not a valid handshake.
func (h *Hints) Handshake(req *http.Request, f *failure.Failure) {
	fault, remedy := f.Payload.Message, "the client must follow RFC 6455, section 4.1"
	switch {
	case f.Payload.Code == errors.Unimplemented:
		fault = "the connection cannot be taken over"
		remedy = "middleware around the router must pass on http.Hijacker, or have a method Unwrap; HTTP/2 has no WebSockets here"
	case req.Method != http.MethodGet || !strings.EqualFold(req.Header.Get("Upgrade"), "websocket"):
		fault = "the request does not ask for a WebSocket"
		remedy = `connect with a WebSocket client, such as new WebSocket("ws://host/path"); a proxy must pass on the headers Connection and Upgrade`
	}
	h.hint(slog.LevelWarn, cause{"handshake refused: " + fault, req.Method + " " + req.Proto}, "request", remedy)
}
