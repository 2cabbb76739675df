package router

// rejectMessage refuses a message: it reports a limit and gives the client exactly
// one answer, or what the action to a limit says.
func (c *Conn) rejectMessage(in *incoming, failed *inspectedError) {
	action := c.router.opts.LimitAction
	if in.route != nil {
		action = in.route.action
	}
	c.respondRejected(in.typ(), action, in.correlationID(), failed)
}

// respondFailed answers for a handler or its middleware, which may know limits, too.
func (c *Conn) respondFailed(ctx *Context, failed *inspectedError) {
	c.respondRejected(ctx.route.name, ctx.route.action, ctx.correlationID, failed)
}

// respondRejected defers what must follow even if a hook calls runtime.Goexit.
func (c *Conn) respondRejected(typ string, action LimitAction, correlationID string, failed *inspectedError) {
	if !failed.limited {
		c.respondError(typ, correlationID, failed)
		return
	}
	defer c.recordLimitExceeded(typ, failed.limit)
	defer c.ws.Wake() // the report may have to wait
	defer c.recordCompleted(typ, failed.payload.Code)
	c.applyLimitAction(action, typ, correlationID, failed)
}

// exceeded tells observers and Options.OnLimitExceeded of a limit.
func (c *Conn) recordLimitExceeded(typ string, limit LimitExceeded) {
	limit.Conn, limit.Type = c, typ
	c.router.observe(Event{Kind: EventLimitExceeded, Type: typ, Reason: string(limit.Kind), Count: 1})
	c.report(limit)
}

// react does to the client what a limit's action says.
func (c *Conn) applyLimitAction(action LimitAction, typ, correlationID string, failed *inspectedError) {
	switch action {
	case ActionSend:
		_ = c.queueWait(encodeError(&failed.payload, correlationID))
	case ActionClose:
		c.closeForLimit(typ, failed.limit)
	case ActionCustom:
	}
}

// closeForLimit closes the connection because of a limit, even if CloseCode calls
// runtime.Goexit.
func (c *Conn) closeForLimit(typ string, limit LimitExceeded) {
	limit.Conn, limit.Type = c, typ
	code := defaultCloseCode(limit)
	defer func() { c.Close(code, limit.closeReason()) }()
	c.router.hook("CloseCode", func() { code = c.router.opts.CloseCode(limit) })
}

// respondError sends an error and reports what the client does not see of it.
func (c *Conn) respondError(typ, correlationID string, failed *inspectedError) {
	defer func() { // even if OnError calls runtime.Goexit
		_ = c.queueWait(encodeError(&failed.payload, correlationID))
		c.recordCompleted(typ, failed.payload.Code)
	}()
	c.router.reportError(c, typ, failed)
}
