package router

import (
	"net/http"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/handshake"
)

// A rejectReason names the check that rejected a request or a new connection. Its values
// are the Reason of EventRejected, a value in the log, and a label of middleware/metrics.
type rejectReason string

const (
	reasonOrigin         rejectReason = "origin"
	reasonDraining       rejectReason = "draining"
	reasonLimit          rejectReason = "limit"
	reasonAuthentication rejectReason = "authentication"
	reasonHandshake      rejectReason = "handshake"
	reasonConnContext    rejectReason = "conn_context"
	reasonOnOpen         rejectReason = "on_open" // after the upgrade: the connection is closed
)

// A handshakeRejection says why a request does not become a connection. The check that
// rejects the request chooses the reason.
type handshakeRejection struct {
	reason rejectReason
	err    *inspectedError
}

// rejectedBy returns a rejection with one of the router's own errors.
func rejectedBy(reason rejectReason, err error) *handshakeRejection {
	return &handshakeRejection{reason, inspect(err, "")}
}

// rejectedByLimit returns a rejection by a limit.
func rejectedByLimit(l LimitExceeded) *handshakeRejection {
	return &handshakeRejection{reasonLimit, limitError(l)}
}

// rejectedByAuthenticate returns the rejection for an error of Options.Authenticate, which
// may be a limit.
func rejectedByAuthenticate(failed *inspectedError) *handshakeRejection {
	if failed.limited {
		return &handshakeRejection{reasonLimit, failed}
	}
	return &handshakeRejection{reasonAuthentication, failed}
}

// errHandshake stands for the error of a handshake that internal/wsconn has answered.
var errHandshake = &errors.Error{Code: errors.InvalidArgument, Message: "not a WebSocket handshake"}

// errDisconnected stands for the error of a handshake whose client has gone.
var errDisconnected = &errors.Error{Code: errors.Canceled, Message: "the client has closed the connection"}

// rejectHandshake answers a request with an HTTP error, or with a close frame. The connection has
// never been opened. The hooks and observers are deferred because the ResponseWriter may panic.
func (c *Conn) rejectHandshake(w http.ResponseWriter, req *http.Request, rejection *handshakeRejection) {
	r, failed := c.router, rejection.err
	payload := failed.payload
	if failed.limited {
		payload.Code = errors.ResourceExhausted // status 429 also if the error says to never retry
		defer r.recordLimitRejection(failed.limit)
	} else if !rejection.expected() {
		defer r.reportPrivate(ErrorReport{IP: c.ip, Err: failed.cause}, failed)
	}
	defer c.recordRequestRejection(req, rejection)
	malformed := rejection.reason == reasonHandshake
	if r.opts.RejectAfterUpgrade && !malformed && r.rejectAfterUpgrade(w, req, &payload) {
		return
	}
	handshake.WriteErrorHeader(w, req, payload.Code, failed.retryAfter)
	text, _ := envelope.MarshalJSON(payload) // as in encodeError
	_, _ = w.Write(text)
}

// expected reports whether a rejection is what a client without valid credentials causes, so that
// its cause is no error of the server.
func (h *handshakeRejection) expected() bool {
	return h.reason == reasonAuthentication && h.err.rejectsCredentials()
}

// rejectsCredentials reports whether the code of an error of Options.Authenticate says that the
// client is at fault.
func (p *inspectedError) rejectsCredentials() bool {
	return p.payload.Code == errors.Unauthenticated || p.payload.Code == errors.PermissionDenied
}

// recordRequestRejection reports a rejected request to observers, the log and Options.OnRejected.
func (c *Conn) recordRequestRejection(req *http.Request, rejected *handshakeRejection) {
	if c.router.opts.Development {
		c.router.hintHandshake(req, rejected)
	}
	rejection, text := rejected.err.rejection(nil, ""), ""
	if rejected.err.limited {
		rejection.Code = errors.ResourceExhausted
	}
	if rejected.expected() {
		text = rejected.err.text
	}
	rejection.Identity, rejection.IP, rejection.Reason = c.Identity(), c.ip, string(rejected.reason)
	c.router.recordRejection(&rejection, text)
}

// recordRejection reports a rejected request or connection to observers, the log and
// Options.OnRejected. The text is for the log: that of a cause that OnError does not receive, or "".
func (r *Router) recordRejection(rejection *Rejection, text string) {
	defer r.reportRejection(rejection)
	r.observe(Event{Kind: EventRejected, Reason: rejection.Reason, Code: rejection.Code})
	r.logRejected(rejection, text)
}

// recordLimitRejection reports a limit without a connection to observers and
// Options.OnLimitExceeded.
func (r *Router) recordLimitRejection(l LimitExceeded) {
	r.observe(Event{Kind: EventLimitExceeded, Reason: string(l.Kind), Count: 1})
	r.callOnLimitExceeded(l)
}
