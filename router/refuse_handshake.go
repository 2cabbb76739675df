package router

import (
	"context"
	"net/http"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/handshake"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/router/observe"
)

// A refusalReason names the check that refused a request or a new connection. Its values
// are the Reason of observe.Refused, a value in the log, and a label of middleware/metrics.
type refusalReason string

const (
	reasonOrigin         refusalReason = "origin"
	reasonDraining       refusalReason = "draining"
	reasonLimit          refusalReason = "limit"
	reasonAuthentication refusalReason = "authentication"
	reasonHandshake      refusalReason = "handshake"
	reasonConnContext    refusalReason = "conn_context"
	reasonOnOpen         refusalReason = "on_open" // after the upgrade: the connection is closed
)

// A handshakeRefusal says why a request does not become a connection. The check that refuses the
// request chooses the reason.
type handshakeRefusal struct {
	reason  refusalReason
	failure *failure.Failure
}

// refusedBy returns a refusal with an error that is not one of the application.
func refusedBy(reason refusalReason, err error) *handshakeRefusal {
	return &handshakeRefusal{reason, inspector.Inspect(err, "")}
}

// refusedByLimit returns a refusal by a limit.
func refusedByLimit(l *LimitExceeded) *handshakeRefusal {
	return &handshakeRefusal{reasonLimit, limitFailure(*l)}
}

// errHandshake stands for the error of a handshake that internal/wsconn has answered.
var errHandshake = &errors.Error{Code: errors.InvalidArgument, Message: "not a WebSocket handshake"}

// errDisconnected stands for the error of a handshake whose client has gone.
var errDisconnected = &errors.Error{Code: errors.Canceled, Message: "the client has closed the connection"}

// A refuser is the ResponseWriter of HTTPFallback. Its client learns the code and the reason of the close frame
// that Options.RefuseAfterUpgrade would send.
type refuser interface{ Refuse(code int, reason string) }

// refuseHandshake answers a request with an HTTP error, or with a close frame. The connection has
// never been opened.
func (c *Conn) refuseHandshake(w http.ResponseWriter, req *http.Request, refusal *handshakeRefusal) {
	defer c.reportRefusedRequest(req, refusal) // even if the ResponseWriter panics
	r, payload := c.router, refusal.failure.Payload
	if refusal.failure.Limit != nil {
		payload.Code = errors.ResourceExhausted // status 429 even if the error says to never retry
	}
	code := int(refusalStatus(payload.Code))
	if f, ok := w.(refuser); ok {
		f.Refuse(code, wire.CloseReason(&payload))
		return
	}
	if r.opts.RefuseAfterUpgrade && refusal.upgrades() {
		_, subprotocol := r.selectFormat(req, TransportWebSocket)
		if r.upgradedRefusals.Refuse(w, req, subprotocol, &r.transport, code, wire.CloseReason(&payload)) {
			return
		}
	}
	handshake.WriteErrorHeader(w, req, payload.Code, refusal.failure.RetryAfter)
	text, _ := envelope.MarshalJSON(payload) // its details have been encoded already
	_, _ = w.Write(text)
}

// refusalStatus maps the code of an error to the code of a close frame: 4000 plus the HTTP
// status.
func refusalStatus(code errors.Code) StatusCode { return StatusCode(4000 + handshake.Status(code)) }

// upgrades reports whether Options.RefuseAfterUpgrade applies. After an upgrade, a proxy cannot try another node.
func (h *handshakeRefusal) upgrades() bool {
	return h.reason != reasonHandshake && h.reason != reasonDraining
}

// reportRefusedRequest reports a refused request.
func (c *Conn) reportRefusedRequest(req *http.Request, refused *handshakeRefusal) {
	r := c.router
	if r.hints != nil {
		r.hints.Refused(req, string(refused.reason), limitOf(refused.failure).name(), refused.failure)
	}
	refusal := refusalOf(refused.failure, nil, "")
	if refused.failure.Limit != nil {
		refusal.Code = errors.ResourceExhausted
	}
	refusal.Identity, refusal.IP, refusal.Reason = c.Identity(), c.ip, string(refused.reason)
	if refused.reason == reasonAuthentication && refused.failure.BlamesClient() { // this is no error of the server
		r.reportRefusedConn(req.Context(), &refusal, nil, refused.failure.Text)
	} else {
		r.reportRefusedConn(req.Context(), &refusal, refused.failure, "")
	}
}

// reportRefusedConn reports a refused request or connection to observers, the log and hooks, which may
// not return. The failure is nil if its cause is not one of the server; the text of such a
// cause, or of a limit, is for the log.
func (r *Router) reportRefusedConn(ctx context.Context, refusal *Refusal, failure *failure.Failure, text string) {
	event := observe.Event{Kind: observe.Refused, Reason: refusal.Reason, Code: refusal.Code}
	var limit *LimitExceeded
	if failure != nil {
		if limit = limitOf(failure); limit != nil {
			event.Limit, text = limit.name(), limit.Error()
		}
	}
	r.hooks.Observe(event)
	r.log.Refused(ctx, refusal.Reason, refusal.Code, refusal.Conn.idOrEmpty(), refusal.IP, text)
	switch {
	case limit != nil:
		r.callOnLimitExceeded(ctx, *limit)
	case failure != nil:
		r.reportPrivate(ErrorReport{Conn: refusal.Conn, IP: refusal.IP, Err: failure.Cause, Context: ctx}, failure)
	}
	r.reportRefusal(ctx, refusal)
}
