package router

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/tracing"
)

// This file runs stages 6 and 7 of the pipeline: decoding and validation, then middleware and
// handler. They run on a goroutine of the connection's serial queue.

// handle runs stages 6 and 7. An event that arrived before the connection was closed is
// handled nevertheless; a call is not, because its answer could not be delivered.
func (c *Conn) handle(in *incoming) {
	route := in.route
	if in.call == nil || c.mayStart(in) {
		c.runHandler(in)
	}
	c.endHandling(in)
	if c.router.hints != nil {
		c.router.hints.EndLockedGoroutine(route.name)
	}
	in.release()
}

// runHandler decodes a message and calls its handler.
func (c *Conn) runHandler(in *incoming) {
	in.stage = "decode"
	var ctx *Context
	refused := c.router.guard(in.stage, in.route, func() (err error) {
		ctx, err = c.decode(in)
		return err
	})
	if refused != nil {
		c.refuseMessage(in, refused)
		return
	}
	in.context = ctx
	in.releaseBytes()
	if in.route.rpc {
		c.handleCall(in)
	} else {
		c.handleEvent(in)
	}
}

// mayStart reports whether a call must still be handled. One that has waited may be due although the
// timer has not fired yet.
func (c *Conn) mayStart(in *incoming) bool {
	ctx := in.call
	timeout := ctx.call.Timeout
	switch {
	case c.ctx.Err() != nil:
		if c.calls.Settle(&ctx.call) {
			c.reportCompleted(in.ctx, ctx.route.name, errors.Canceled)
		}
		return false
	case in.waits && timeout > 0 && time.Since(ctx.call.ReceivedAt) >= timeout: // reads only the monotonic clock
		c.refuseMessage(in, failure.Of(errDeadline).At("deadline"))
		return false
	default:
		return !ctx.call.IsAnswered()
	}
}

// endHandling ends a message once its handler has returned or it has been refused.
func (c *Conn) endHandling(in *incoming) {
	in.ended = true
	defer c.finishHandling(in.route)
	in.releaseBytes()
	switch ctx := in.context; {
	case ctx == nil:
	case in.call != nil:
		defer ctx.call.End(endedByReturn)
		c.extra().guards.Remove(&ctx.call)
		if ctx.route.afterAnswer != nil {
			ctx.route.afterAnswer(ctx)
		}
	case in.route.concurrent:
		c.endEvent()
	}
}

// endExited ends a message whose handler, or another function of the application, has not
// returned.
func (c *Conn) endExited(in *incoming) {
	if !in.ended {
		defer c.endHandling(in)
		c.refuseExited(in)
	}
}

// finishHandling releases what stage 5 has acquired for the message.
func (c *Conn) finishHandling(route *Route) {
	defer c.release() // even if an observer does not return
	if route.rpc {
		c.finishCall(route)
	}
}

// finishCall releases the concurrency of a call.
func (c *Conn) finishCall(route *Route) {
	c.calls.Finish()
	c.router.hooks.Observe(observe.Event{Kind: observe.Finished, Type: route.name})
}

// reportCompleted reports the outcome of a message to observers, and ends its span. ctx is the Context of
// the message, or the one from which that is derived.
func (c *Conn) reportCompleted(ctx context.Context, typ string, code errors.Code) {
	if message, ok := ctx.(*Context); ok {
		ctx = message.base()
	}
	if ctx != &c.ctx {
		c.router.spans.End(ctx, tracing.Result{Code: code})
	}
	c.router.hooks.Observe(observe.Event{Kind: observe.Completed, Type: typ, Code: code})
}

// decode decodes and validates a message. It must be called by guard.
func (c *Conn) decode(in *incoming) (*Context, error) {
	payload, unchecked, err := c.payload(in)
	if err != nil {
		return nil, err
	}
	ctx := in.call
	if ctx == nil {
		ctx = c.newContext(in, in.head.CorrelationID)
	}
	err = c.decodePayload(in, ctx, payload)
	if err != nil && unchecked {
		err = c.decodeParsed(in, ctx, payload, err)
	}
	if err != nil {
		return nil, err
	}
	library := c.router.opts.Validate
	if in.route.protocol { // it knows the application's messages only
		library = nil
	}
	if err = validate(ctx.message, in.route.value, in.route.decoding.OfPointer(), library); err != nil {
		return nil, err
	}
	return ctx, nil
}

// payload returns the payload, which is nil if there is none. unchecked is true if the envelope is not
// validated. The envelope must not be on the stack of decode: that of a handler that waits would be twice
// as large.
func (c *Conn) payload(in *incoming) (payload []byte, unchecked bool, err error) {
	if payload, ok := c.payloadIfValid(in); ok {
		return payload, true, nil
	}
	parsed, err := in.parse()
	return parsed.Payload, false, invalid(err)
}

// payloadIfValid returns a payload that the JSON library can read before the envelope is validated, so
// that most messages are read once.
func (c *Conn) payloadIfValid(in *incoming) (payload []byte, ok bool) {
	if in.Binary {
		return nil, false
	}
	payload, ok = in.head.PayloadIfValid(in.Bytes)
	return payload, ok && len(payload) <= c.router.opts.Limits.Elements
}

// decodeParsed decodes a message after what payloadIfValid has returned could not be decoded, which has
// the error of the library.
func (c *Conn) decodeParsed(in *incoming, ctx *Context, tried []byte, failed error) error {
	parsed, err := in.parse()
	switch {
	case err != nil:
		return invalid(err)
	case len(parsed.Payload) == len(tried):
		return failed
	}
	in.route.decoding.Reset(ctx.message)
	return c.decodePayload(in, ctx, parsed.Payload)
}

// decodePayload decodes the payload of a message for its Context.
func (c *Conn) decodePayload(in *incoming, ctx *Context, payload []byte) (err error) {
	decoding := &in.route.decoding
	limit := c.router.opts.Limits.Elements
	if n := decoding.Elements(in.codec, payload, limit); n > limit {
		return &LimitExceeded{Kind: limitElements, Option: optionElements, Observed: int64(n), Limit: int64(limit), RetryAfter: errors.Never}
	}
	ctx.message, err = decoding.Decode(in.codec, payload, ctx.message)
	return err
}

// parse validates the envelope.
func (in *incoming) parse() (wire.Envelope, error) {
	switch {
	case in.codec != nil:
		return wire.ParseBinary(in.Bytes)
	case in.Binary:
		return wire.Parse(in.Bytes)
	default:
		return in.head.Parse(in.Bytes) // the transport has checked the UTF-8 of text
	}
}

// validate calls the Validate method of the message to which m points, and then library, which may be nil. isPointer says
// that the type of the message, which value returns, is a pointer type.
func validate(m any, value func(any) Message, isPointer bool, library func(any) error) error {
	if isPointer {
		m = value(m)
	}
	if v, ok := m.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return invalid(err)
		}
	}
	if library == nil {
		return nil
	}
	if !isPointer {
		m = value(m)
	}
	return invalid(library(m))
}

// invalid gives an error the code INVALID_ARGUMENT, unless it is nil, has a code, or comes
// from a panic. Like Inspect, it must be called by guard.
func invalid(err error) error {
	if err == nil || failure.IsNilPointer(err) {
		return err
	}
	if _, ok := failure.AsType[*errors.Error](err); ok {
		return err
	}
	if _, ok := failure.AsType[*errors.PanicError](err); ok {
		return err
	}
	limit, isLimit := failure.AsType[*LimitExceeded](err)
	closing, isClose := failure.AsType[*CloseError](err)
	if isLimit && limit == nil || isClose && closing == nil {
		return err
	}
	text := err.Error()
	return &errors.Error{
		Code:    errors.InvalidArgument,
		Message: text,
		Details: map[string]any{"reason": text},
	}
}

// handleEvent is stage 7 of a message without a reply.
func (c *Conn) handleEvent(in *incoming) {
	if in.route.concurrent {
		c.startEvent()
		c.messages.Yield()
	}
	if refused := c.run(in); refused != nil {
		c.refuseMessage(in, refused)
	} else {
		c.reportCompleted(in.ctx, in.route.name, "")
	}
}

// handleCall is stage 7 of a call, which gets exactly one answer, at the latest at its deadline. A
// late reply is dropped, and a late error is only reported.
func (c *Conn) handleCall(in *incoming) {
	if in.route.concurrent {
		c.messages.Yield()
	}
	if in.call.call.IsAnswered() {
		return // the handler of an answered call does not start
	}
	if refused := c.run(in); refused != nil {
		c.refuseMessage(in, refused)
	} else if c.calls.Settle(&in.call.call) {
		c.answerReply(in)
	}
}

// run calls the handler and its middleware.
func (c *Conn) run(in *incoming) *failure.Failure {
	in.stage = "handler"
	if c.router.hooks.Observer != nil {
		defer c.reportHandled(in.route, time.Now())
	}
	return c.router.guard(in.stage, in.route, func() error { return in.route.run(in.context) })
}

// reportHandled reports the duration of a handler to observers.
func (c *Conn) reportHandled(route *Route, since time.Time) {
	c.router.hooks.Observe(observe.Event{Kind: observe.Handled, Type: route.name, Duration: time.Since(since)})
}

// errNoReply reports a call whose handler was not called and whose reply was not set.
var errNoReply = errors.New("router: the call has no reply; middleware must call next or SetReply, or return an error")

// errNotEncoded ends the sending of a reply that cannot be encoded, even if that is a panic.
var errNotEncoded = errors.New("router: the reply cannot be encoded")

// answerReply encodes and queues the reply of a call that has been settled, or an error if the reply
// cannot be encoded. The caller wakes the writer.
func (c *Conn) answerReply(in *incoming) {
	ctx := in.context
	if h := c.router.hints; h != nil {
		h.Reply(ctx.route.name, ctx.Reply(), ctx.route.contract.reply, ctx.route.contract.replyType)
	}
	in.stage = "reply"
	if refused := c.queueReply(ctx); refused != nil {
		c.refuseSettled(in, refused)
	} else {
		c.reportCompleted(in.ctx, ctx.route.name, "")
	}
}

// queueReply encodes and queues a reply that the client may receive then. It returns why the client receives another
// answer.
func (c *Conn) queueReply(ctx *Context) (refused *failure.Failure) {
	encode := func() (reply *wsconn.Frame, err error) {
		refused = c.router.guard("reply", ctx.route, func() error {
			reply, err = encodeReply(ctx)
			return err
		})
		if refused != nil {
			return nil, errNotEncoded
		}
		return reply, nil
	}
	guard := c.extra().guards.Of(&ctx.call)
	if guard == nil {
		_ = c.member.WS.QueueAnswer(encode, nil)
		return refused
	}
	for {
		if refused := c.router.guard("Authorize", ctx.route, guard.Check); refused != nil {
			return refused
		}
		if err := c.member.WS.QueueAnswer(encode, guard.IsStale); !errors.Is(err, wsconn.ErrCanceled) {
			return refused
		}
	}
}
