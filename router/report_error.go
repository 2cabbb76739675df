package router

import (
	"context"
	"net/netip"

	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
)

// An ErrorReport describes an error whose details the client does not receive.
type ErrorReport struct {
	Conn *Conn  // nil if the request was not upgraded
	Type string // message type as in IngressContext; "" if no message is involved
	Err  error
	IP   netip.Addr // of the client; the zero netip.Addr if it is unknown

	// Context is that of the message, or else of the connection or the request. A record of the log that
	// is written with it can have the ID of the trace.
	Context context.Context
}

// reportError passes the private part of an error, if there is one, to Options.OnError or to
// the log. Invalid credentials of a refresh are expected, as those of a request are.
func (r *Router) reportError(ctx context.Context, c *Conn, typ string, failure *failure.Failure) {
	if typ == protocol.TypeAuth && failure.BlamesClient() {
		r.log.RefreshRefused(ctx, c.member.ID, c.ip, failure)
		return
	}
	r.reportPrivate(ErrorReport{Conn: c, Type: typ, IP: c.ip, Err: failure.Cause, Context: ctx}, failure)
}

// reportPrivate is reportError with a report that has been filled in.
func (r *Router) reportPrivate(report ErrorReport, failure *failure.Failure) {
	switch {
	case failure.Cause == nil:
	case r.opts.OnError != nil:
		r.hooks.Call(report.Context, "OnError", func() { r.opts.OnError(report) })
	default:
		r.log.Failed(report.Context, report.Conn.idOrEmpty(), report.Type, report.IP, failure)
	}
}
