package router

import (
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// rejectMessage rejects a message: the client receives exactly one answer, or what the
// LimitAction says.
func (c *Conn) rejectMessage(in *incoming, failed *inspectedError) {
	if in.call != nil && !c.settleCall(in.call) { // the deadline has passed meanwhile
		c.reportLate(in.route.name, failed)
		return
	}
	action := c.router.opts.LimitAction
	if in.route != nil {
		action = in.route.action
	}
	defer c.respondRejected(in.typ(), action, in.correlationID(), failed)
	if failed.exceedsConcurrency() {
		c.undo(in.undo)
	}
}

// reportLate reports the error of a call that has been answered already.
func (c *Conn) reportLate(typ string, failed *inspectedError) {
	if failed.limited {
		c.recordLimitExceeded(typ, failed.limit)
	} else {
		c.router.reportError(c, typ, failed)
	}
}

// respondFailed answers a message whose handler or middleware has returned an error, which may
// be a limit.
func (c *Conn) respondFailed(ctx *Context, failed *inspectedError) {
	defer c.respondRejected(ctx.route.name, ctx.route.action, ctx.correlationID, failed)
	if failed.exceedsConcurrency() {
		functions, _ := ctx.Value(undoKey{}).(*undo)
		c.undo(functions)
	}
}

// respondRejected answers with an error or according to the LimitAction, and reports it. What
// must happen even if a hook calls runtime.Goexit is deferred.
func (c *Conn) respondRejected(typ string, action LimitAction, correlationID string, failed *inspectedError) {
	defer c.reportRejected(typ, failed)
	if !failed.limited {
		c.respondError(typ, correlationID, failed)
		return
	}
	defer c.recordLimitExceeded(typ, failed.limit)
	defer c.sub.WS.Wake() // before the report, which may have to wait
	defer c.recordCompleted(typ, failed.payload.Code)
	c.applyLimitAction(action, typ, correlationID, failed)
}

// recordLimitExceeded reports a limit to observers and Options.OnLimitExceeded.
func (c *Conn) recordLimitExceeded(typ string, limit LimitExceeded) {
	limit.Conn, limit.Type = c, typ
	c.router.observe(Event{Kind: EventLimitExceeded, Type: typ, Reason: string(limit.Kind), Count: 1})
	c.report(limit)
}

// applyLimitAction sends what the LimitAction says.
func (c *Conn) applyLimitAction(action LimitAction, typ, correlationID string, failed *inspectedError) {
	switch action {
	case ActionSend:
		c.answerError(failed, correlationID)
	case ActionClose:
		c.closeForLimit(typ, failed.limit)
	case ActionCustom:
	}
}

// closeForLimit closes the connection because of an exceeded limit, with the default code if
// CloseCode panics or calls runtime.Goexit.
func (c *Conn) closeForLimit(typ string, limit LimitExceeded) {
	limit.Conn, limit.Type = c, typ
	code := defaultCloseCode(limit)
	defer func() { c.Close(code, limit.closeReason()) }()
	c.router.hook("CloseCode", func() { code = c.router.opts.CloseCode(limit) })
}

// respondError sends an error and reports its private part.
func (c *Conn) respondError(typ, correlationID string, failed *inspectedError) {
	defer func() { // even if OnError calls runtime.Goexit
		c.answerError(failed, correlationID)
		c.recordCompleted(typ, failed.payload.Code)
	}()
	c.router.reportError(c, typ, failed)
}

// answerError queues an error as the answer to a message.
func (c *Conn) answerError(failed *inspectedError, correlationID string) {
	c.queueAnswer(func() *wsconn.Frame { return envelope.EncodeError(c.binary(), &failed.payload, correlationID) })
}
