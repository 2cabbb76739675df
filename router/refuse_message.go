package router

import (
	"context"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/wsconn"
	"github.com/penstock-go/penstock/router/observe"
)

// refuseMessage refuses a message: the client receives exactly one answer, or what the LimitAction
// says. The caller wakes the writer.
func (c *Conn) refuseMessage(in *incoming, refused *failure.Failure) {
	if in.call != nil && !c.calls.Settle(&in.call.call) { // the deadline has passed meanwhile
		in.stage = ""
		c.reportLate(in.reportContext(), in.route.name, refused)
		return
	}
	c.refuseSettled(in, refused)
}

// refuseSettled refuses an event, or a call for which Index.Settle has reported true.
func (c *Conn) refuseSettled(in *incoming, refused *failure.Failure) {
	action := c.router.opts.LimitAction
	if in.route != nil {
		action = in.route.action
	}
	if in.refusal == nil && exceedsConcurrency(refused) {
		in.refusal = refused
		c.undo(in.ctx, in.undo)
	}
	in.refusal, in.stage = nil, ""
	refused = refused.To(c.id)
	if in.route != nil && c.router.hints != nil {
		c.router.hintError(in.route, refused)
	}
	c.refuse(in.reportContext(), in.typ(), action, in.correlationID(), refused)
}

// errExited reports application code that calls runtime.Goexit.
var errExited = errors.New("router: runtime.Goexit was called, as FailNow of package testing does")

// exitedAt returns the failure of application code that has not returned.
func exitedAt(stage string) *failure.Failure { return failure.Internal(errExited).At(stage) }

// refuseExited refuses a message for which application code has not returned, unless it has
// its answer.
func (c *Conn) refuseExited(in *incoming) {
	switch {
	case in.refusal != nil:
		c.refuseSettled(in, in.refusal)
	case in.stage == "reply":
		c.refuseSettled(in, exitedAt(in.stage))
	case in.stage != "":
		c.refuseMessage(in, exitedAt(in.stage))
	}
}

// refuse answers a message with an error or according to the LimitAction, and then reports that to
// hooks, which may not return. ctx is the Context of the message, or the one from which that is
// derived.
func (c *Conn) refuse(ctx context.Context, typ string, action LimitAction, correlationID string, refused *failure.Failure) {
	limit := limitOf(refused)
	c.reportCompleted(ctx, typ, refused.Payload.Code)
	c.observeRefused(typ, refused)
	switch {
	case limit == nil || action == ActionSend:
		c.answerError(refused, correlationID)
	case action == ActionClose:
		c.closeForLimit(*limit)
	}
	if limit != nil {
		c.sub.WS.Wake() // before the report, which may have to wait
		c.reportLimit(ctx, typ, *limit)
	} else {
		c.router.reportError(ctx, c, typ, refused)
	}
	if c.router.opts.OnRefused != nil && isReported(refused) {
		refusal := refusalOf(refused, c, typ)
		refusal.Identity, refusal.IP, refusal.Reason = c.Identity(), c.ip, refused.Stage
		c.router.reportRefusal(ctx, &refusal)
	}
}

// isReported reports whether a message is refused for another reason than that its sender has canceled
// it or has disconnected.
func isReported(refused *failure.Failure) bool { return refused.Payload.Code != errors.Canceled }

// observeRefused reports a refused message to observers.
func (c *Conn) observeRefused(typ string, refused *failure.Failure) {
	if c.router.observer == nil || !isReported(refused) {
		return
	}
	event := observe.Event{Kind: observe.Refused, Type: typ, Reason: refused.Stage, Code: refused.Payload.Code, Count: 1}
	if limit := limitOf(refused); limit != nil {
		event.Limit = string(limit.Kind)
	}
	c.router.observe(event)
}

// reportLate reports the error of a call that has been answered already.
func (c *Conn) reportLate(ctx context.Context, typ string, late *failure.Failure) {
	if limit := limitOf(late); limit != nil {
		c.reportLimit(ctx, typ, *limit)
	} else {
		c.router.reportError(ctx, c, typ, late)
	}
}

// closeForLimit closes the connection because of an exceeded limit.
func (c *Conn) closeForLimit(limit LimitExceeded) { c.Close(limit.closeCode(), limit.closeReason()) }

// answerError queues an error as the answer to a message.
func (c *Conn) answerError(refused *failure.Failure, correlationID string) {
	c.queueAnswer(func() *wsconn.Frame { return envelope.EncodeError(c.binary(), &refused.Payload, correlationID) })
}
