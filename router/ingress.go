package router

import (
	"context"
	"net/netip"
	"time"
)

// An IngressContext describes a received message before its payload is decoded.
type IngressContext struct {
	// Type is a registered type, or one of the protocol: "__heartbeat", "$ws:abort", "$ws:answer" (an
	// answer to a [Call]), "$ws:auth", "$ws:credit", "$ws:hello", "$ws:resume", "$ws:subscribe" or
	// "$ws:unsubscribe". It is "" for any other message, and for one that cannot be parsed.
	//
	// A "$ws:resume" passes ingress twice: as itself, and then as one "$ws:subscribe" with the Work of all
	// topics that it subscribes and a Size of 0.
	Type string

	ConnID     string     // as Conn.ID returns it
	IP         netip.Addr // of the client, unmapped and without a zone; the zero netip.Addr if unknown
	Identity   Identity   // of the connection when the message was read
	Work       Work       // of a message of the protocol about topics
	Size       int64      // of the whole message in bytes, including the envelope
	ReceivedAt time.Time  // when the last byte of the message was read

	conn *Conn  // nil if the router has not made it
	undo **undo // of the message; nil if the router has not passed the IngressContext to an ingress function
}

// An undo is a function of OnConcurrencyExceeded, and those that were added before it.
type undo struct {
	f      func(context.Context)
	before *undo
}

// OnConcurrencyExceeded makes the router call f if the message is refused later because too many
// are being handled: by Limits.Concurrency, or by a handler or a middleware that returns a
// [*LimitExceeded] of the kind LimitConcurrency. So an ingress function can return what it has
// taken; package middleware/ratelimit does. The client is answered after f has returned. The
// context of f has the values of that of the ingress function, and does not end. An ingress function
// must call it before it returns. On an IngressContext that no ingress function has received, it does
// nothing.
func (in *IngressContext) OnConcurrencyExceeded(f func(context.Context)) {
	if in.undo != nil {
		*in.undo = &undo{f, *in.undo}
	}
}

// Report reports an error without refusing the message: a [*LimitExceeded] to Options.OnLimitExceeded, with DryRun,
// and any other to Options.OnError, or to the log without that. So an ingress function reports what it would refuse, or
// that it could not decide. It does nothing if the router has not made the IngressContext.
func (in *IngressContext) Report(ctx context.Context, err error) {
	c := in.conn
	if c == nil || err == nil {
		return
	}
	f := inspector.Inspect(err, "ingress")
	if limit := limitOf(f); limit != nil {
		dry := *limit
		dry.DryRun = true
		c.reportLimit(ctx, in.Type, dry)
		return
	}
	c.router.reportError(ctx, c, in.Type, f)
}

// undo calls the functions of OnConcurrencyExceeded, the latest one first, even if one of them does
// not return.
func (c *Conn) undo(ctx context.Context, functions *undo) {
	if functions == nil {
		return
	}
	defer c.undo(ctx, functions.before)
	c.router.hooks.Call(ctx, "OnConcurrencyExceeded", func() { functions.f(context.WithoutCancel(ctx)) })
}

// An IngressFunc admits a message by returning nil, or refuses it by returning an error,
// before the payload is decoded. The client receives the error: a [*LimitExceeded] as an
// exceeded limit, and any other error by its code.
//
// Many connections call it concurrently. Later messages of the same connection wait until it
// returns. The context is canceled when the connection is closed.
type IngressFunc func(ctx context.Context, in IngressContext) error
