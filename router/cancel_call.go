package router

// This file ends calls before their handler returns: at the deadline, when the client aborts
// them, and when the connection is drained.

// cancelCall answers an open call with an error and cancels its context. A call that waits in the
// serial queue is removed from it, so that its permit and its memory are free again.
func (c *Conn) cancelCall(ctx *Context, failed *inspectedError, why *callEnd) {
	defer ctx.call.end(why)
	defer c.ws.Wake()
	removed := c.messages.Remove(nil, func(in *incoming) bool { return in.call == ctx })
	for _, in := range removed {
		defer c.finishHandling(in.route)
		defer in.release()
	}
	c.respondCall(ctx, nil, failed)
}

// abort handles the client's request to cancel a call. The call may have been answered meanwhile, so
// an unknown ID is ignored.
func (c *Conn) abort(id string) {
	if ctx := c.calls.find(id); ctx != nil {
		c.cancelCall(ctx, inspect(errAborted, ""), endedByAbort)
	}
}
