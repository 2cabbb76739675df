package router

import (
	"context"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/wire"
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
	if l := limitOf(refused); in.refusal == nil && l != nil && l.Kind == LimitConcurrency {
		in.refusal = refused
		c.undo(in.ctx, in.undo)
	}
	in.refusal, in.stage = nil, ""
	refused = refused.To(c.member.ID)
	if in.route != nil && c.router.hints != nil {
		details, _ := refused.Payload.Details.(jsonv2.Value) // those of limits have codes that no route declares
		c.router.hints.Error(in.route.name, in.route.contract.errors.Mismatch(refused.Payload.Code, details))
	}
	c.refuse(in.reportContext(), in.typ(), action, in.correlationID(), refused)
}

// refuseExited refuses a message for which application code has not returned, unless it has
// its answer.
func (c *Conn) refuseExited(in *incoming) {
	switch {
	case in.refusal != nil:
		c.refuseSettled(in, in.refusal)
	case in.stage == "reply":
		c.refuseSettled(in, failure.Exited(in.stage))
	case in.stage != "":
		c.refuseMessage(in, failure.Exited(in.stage))
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
	case limit == nil || action == ActionSend || limit.Option == optionElements:
		c.queueAnswer(func() *wsconn.Frame { return envelope.EncodeError(c.binary(), &refused.Payload, correlationID) })
	case action == ActionClose && limit.Kind == LimitPayload:
		c.Close(StatusTooBig, wire.CloseReason(&refused.Payload))
	case action == ActionClose:
		c.Close(StatusTryAgainLater, wire.CloseReason(&refused.Payload))
	}
	if limit != nil {
		c.member.WS.Wake() // before the report, which may have to wait
	}
	c.reportLate(ctx, typ, refused)
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
	if c.router.hooks.Observer == nil || !isReported(refused) {
		return
	}
	c.router.hooks.Observe(observe.Event{
		Kind: observe.Refused, Type: typ, Reason: refused.Stage, Code: refused.Payload.Code, Count: 1, Limit: limitOf(refused).name(),
	})
}

// reportLate reports the error of a message that has its answer.
func (c *Conn) reportLate(ctx context.Context, typ string, late *failure.Failure) {
	if limit := limitOf(late); limit != nil {
		c.reportLimit(ctx, typ, *limit)
	} else {
		c.router.reportError(ctx, c, typ, late)
	}
}

// reportUnread reports a message that is not read to its end because of a limit, which has closed the connection.
func (c *Conn) reportUnread(err error) {
	l := LimitExceeded{Kind: LimitPayload, Option: "router.Limits.MaxMessageBytes", Limit: c.router.transport.MaxMessageBytes, RetryAfter: errors.Never}
	switch {
	case errors.Is(err, wsconn.ErrTooBig):
	case errors.Is(err, wsconn.ErrNoMemory):
		l = LimitExceeded{Kind: limitInbound, Option: "router.Limits.InboundBytes", Limit: c.router.opts.Limits.InboundBytes}
	default:
		return
	}
	l.Observed = l.Limit + 1 // or more
	c.refuse(&c.ctx, "", ActionCustom, "", limitFailure(l).At("size"))
}
