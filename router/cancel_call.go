package router

import "github.com/penstock-go/penstock/internal/failure"

// This file ends calls before their handler returns: at the deadline, when the client aborts
// them, and when the connection is drained.

// cancelCall cancels the context of an open call and answers it with an error. A call that waits in
// the serial queue is removed from it, so that its permit and its memory are free again. It waits
// for room in the send queue, and the handler does not.
func (c *Conn) cancelCall(ctx *Context, failure *failure.Failure, why *callEnd) {
	if !c.acquire() { // or the end of the handler could let Shutdown close the connection before the answer
		return
	}
	defer c.release()
	first := c.settleCall(ctx)
	for _, in := range c.takeWaiting(ctx) {
		defer c.finishHandling(in.route)
		defer in.release()
	}
	if !first {
		return
	}
	ctx.call.end(why)
	defer c.sub.WS.Wake()
	c.refuse(ctx.route.name, ctx.route.action, ctx.correlationID, failure)
}

// takeWaiting removes a call that has its answer from the serial queue. It is called after settleCall,
// and by enqueue for a call that was answered while it was being added to the queue: one of them
// finds it.
func (c *Conn) takeWaiting(ctx *Context) []*incoming {
	return c.messages.Remove(nil, func(in *incoming) bool { return in.call == ctx })
}

// abort handles the client's request to cancel a call. The call may have been answered meanwhile, so
// an unknown ID is ignored.
func (c *Conn) abort(id string) {
	if ctx := c.calls.find(id); ctx != nil {
		c.cancelCall(ctx, failure.Of(errAborted), endedByAbort)
	}
}
