package router

import (
	"context"
	"net/netip"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
)

// A Refusal describes a refused request, connection or message, for Options.OnRefused.
type Refusal struct {
	Conn     *Conn      // nil for a request that was not upgraded, or only to be refused
	Identity Identity   // of the connection; for a request what Options.Authenticate returned, also with an error
	IP       netip.Addr // of the client; the zero netip.Addr if it is unknown
	Type     string     // message type as in IngressContext; "" for requests and connections

	// Code is that of the error, even if the client does not receive it.
	Code errors.Code

	// Reason names the check. For a request it is "origin", "draining", "limit", "authentication",
	// "handshake" or "conn_context" (it failed), and for a connection "on_open" (of Options). For a
	// message it is the stage of the pipeline: "size", "parse", "ingress", "draining", "route",
	// "concurrency", "decode", "handler" or "reply", or "deadline" for a call that was not answered
	// in time.
	Reason string

	// Err is the [*LimitExceeded] if a limit was exceeded, and otherwise the error of the
	// application, if the client does not receive all of it. Else it is nil.
	Err error

	RetryAfter time.Duration // as in errors.Error: 0 if unknown, errors.Never if retrying cannot help

	// Unreported is the number of refusals, of all clients, for which Options.OnRefused was not
	// called since the previous call.
	Unreported int64
}

// refusalOf returns what the failure says. The connection is nil if none was opened.
func refusalOf(refused *failure.Failure, c *Conn, typ string) Refusal {
	refusal := Refusal{Conn: c, Type: typ, Code: refused.Payload.Code, Err: refused.Cause, RetryAfter: refused.RetryAfter}
	if l := limitOf(refused); l != nil {
		limit := *l
		limit.Conn, limit.Type, limit.Messages = c, typ, 1
		refusal.Err = &limit
	}
	return refusal
}

// ObserveRefusals makes the router call a function for each [Refusal] for which it calls
// Options.OnRefused, or would if that were set: after it, and on the same terms. It panics if f is nil
// or the router has begun to serve.
func (r *Router) ObserveRefusals(f func(Refusal)) {
	r.mustNotBeServing("ObserveRefusals")
	if f == nil {
		panic("router: ObserveRefusals needs a function")
	}
	if first := r.opts.OnRefused; first != nil {
		second := f
		f = func(refusal Refusal) {
			defer second(refusal) // even if the first one panics
			first(refusal)
		}
	}
	r.opts.OnRefused = f
}

// reportRefusal calls Options.OnRefused, unless the client has been refused before in the same
// interval.
func (r *Router) reportRefusal(ctx context.Context, refusal *Refusal) {
	if r.opts.OnRefused == nil {
		return
	}
	missed, passes := r.refusals.Passes(refusal.Identity.user(), refusal.IP, refusal.Conn.idOrEmpty())
	if !passes {
		return
	}
	refusal.Unreported = missed
	if refusal.Conn != nil {
		refusal.Conn.member.WS.Wake() // the hook must not delay the answer
	}
	r.hooks.Call(ctx, "OnRefused", func() { r.opts.OnRefused(*refusal) })
}
