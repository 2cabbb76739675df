package router

import (
	"net/http"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/topic"
)

// This file finds likely mistakes of the application for Options.Development, which internal/hints
// reports. Its functions may be called only if Router.hints is set, and not under a lock.

// hintHandshake explains why a request was refused.
func (r *Router) hintHandshake(req *http.Request, refused *handshakeRefusal) {
	if refused.failure.Payload.Code == errors.Canceled { // the client has gone
		return
	}
	switch refused.reason {
	case reasonOrigin:
		r.hints.Origin(req)
	case reasonHandshake:
		r.hints.Handshake(req, refused.failure)
	case reasonAuthentication:
		r.hints.Authentication(refused.failure)
	case reasonLimit:
		r.hints.Limit(string(limitOf(refused.failure).Kind))
	case reasonConnContext, reasonDraining, reasonOnOpen:
	}
}

// hintError reports an error that its route does not declare.
func (r *Router) hintError(rt *Route, refused *failure.Failure) {
	details, _ := refused.Payload.Details.(jsonv2.Value) // those of limits have codes that no route declares
	if mismatch := rt.contract.errors.Mismatch(refused.Payload.Code, details); mismatch != "" {
		r.hints.Error(rt.name, mismatch)
	}
}

// hintSubscription reports a topic to which no client can subscribe.
func (r *Router) hintSubscription(p *topic.Pattern, topic string) {
	if p.Text == "" {
		r.hints.NoPattern(topic)
		return
	}
	r.hints.NoAuthorize(p.Text, p.Position)
}
