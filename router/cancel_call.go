package router

import (
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/calls"
	"github.com/penstock-go/penstock/internal/failure"
)

// This file ends calls before their handler returns: at the deadline, when the client aborts
// them, and when the connection is drained.

// errAborted answers a call that the client has aborted.
var errAborted = &errors.Error{Code: errors.Canceled, Message: failure.Message(errors.Canceled)}

// errDeadline answers a call whose deadline passes before it starts or before it is answered.
var errDeadline = &errors.Error{Code: errors.DeadlineExceeded, Message: failure.Message(errors.DeadlineExceeded)}

// The ways in which a call ends.
//
//nolint:gochecknoglobals // never changed
var (
	endedByReturn   = calls.NewEnd(nil)
	endedByAbort    = calls.NewEnd(errAborted)
	endedByDeadline = calls.NewExpiry(errDeadline)
	endedByDraining = calls.NewEnd(errDraining)
)

// cancelCall cancels the context of an open call and answers it with an error. A call that waits in
// the serial queue is removed from it, so that its permit and its memory are free again. It waits
// for room in the send queue, and the handler does not.
func (c *Conn) cancelCall(ctx *Context, failure *failure.Failure, why *calls.End) {
	if !c.acquire() { // or the end of the handler could let Shutdown close the connection before the answer
		return
	}
	defer c.release()
	first := c.calls.Settle(&ctx.call)
	for _, in := range c.takeWaiting(ctx) {
		defer c.finishHandling(in.route)
		defer in.release()
	}
	if !first {
		return
	}
	ctx.call.End(why)
	defer c.member.WS.Wake()
	c.refuse(ctx.base(), ctx.route.name, ctx.route.action, ctx.call.ID, failure)
}

// takeWaiting removes a call that has its answer from the serial queue. It is called after Index.Settle,
// and by enqueue for a call that was answered while it was being added to the queue: one of them
// finds it.
func (c *Conn) takeWaiting(ctx *Context) []*incoming {
	return c.messages.Remove(nil, func(in *incoming) bool { return in.call == ctx })
}

// expireCall answers a call whose deadline has passed.
func expireCall(ctx *Context) {
	ctx.conn.cancelCall(ctx, failure.Of(errDeadline).At("deadline"), endedByDeadline)
}

// abort handles the client's request to cancel a call. The call may have been answered meanwhile, so
// an unknown ID is ignored.
func (c *Conn) abort(id string) {
	if k := c.calls.Find(id); k != nil {
		c.cancelCall(k.Of, failure.Of(errAborted), endedByAbort)
	}
}
