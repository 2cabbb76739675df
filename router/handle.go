package router

import (
	"reflect"
	"slices"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file runs stages 6 and 7 of the pipeline: decoding and validation, then middleware and
// handler. They run on a goroutine of the connection's serial queue.

// handle runs stages 6 and 7. An event that arrived before the connection was closed is
// handled nevertheless; a call is not, because its answer could not be delivered.
func (c *Conn) handle(in *incoming) {
	route := in.route
	defer c.finishHandling(route)
	if in.call != nil && !c.mayStart(in.call, in.waits) {
		in.release()
		return
	}
	ctx := c.runDecode(in)
	switch {
	case ctx == nil:
	case route.rpc:
		c.handleCall(ctx)
	default:
		c.handleEvent(ctx)
	}
	if c.router.opts.Development {
		c.router.endLockedGoroutine(route)
	}
}

// mayStart reports whether a call must still be handled. One that has waited may be due although the
// timer has not fired yet.
func (c *Conn) mayStart(ctx *Context, waited bool) bool {
	timeout := ctx.call.timeout
	switch {
	case c.ctx.Err() != nil:
		if c.settleCall(ctx) {
			c.recordCompleted(ctx.route.name, errors.Canceled)
		}
		return false
	case waited && timeout > 0 && time.Since(ctx.receivedAt) >= timeout: // reads only the monotonic clock
		c.respondCall(ctx, inspect(errDeadline, "").at("deadline"))
		return false
	default:
		return !ctx.call.isAnswered()
	}
}

// errExited reports application code that calls runtime.Goexit.
var errExited = errors.New("router: runtime.Goexit was called, as FailNow of package testing does")

// finishHandling releases what stage 5 has acquired for the message.
func (c *Conn) finishHandling(route *Route) {
	defer c.release() // even if an observer calls runtime.Goexit
	if route.rpc {
		c.finishCall(route)
	}
}

// finishCall releases the concurrency of a call.
func (c *Conn) finishCall(route *Route) {
	c.inFlight.Add(-1)
	c.router.observe(Event{Kind: EventFinished, Type: route.name})
}

// recordCompleted reports the outcome of a message to observers.
func (c *Conn) recordCompleted(typ string, code errors.Code) {
	c.router.observe(Event{Kind: EventCompleted, Type: typ, Code: code})
}

// runDecode is stage 6. It returns nil if it has rejected the message.
func (c *Conn) runDecode(in *incoming) (ctx *Context) {
	var failed *inspectedError
	defer func() {
		defer in.release()
		if failed != nil {
			c.rejectMessage(in, failed)
		}
	}()
	c.router.guard(&failed, "decode", in.route, func() (err error) {
		ctx, err = c.decode(in)
		return err
	})
	return ctx
}

// decode decodes and validates a message. It must be called by guard.
func (c *Conn) decode(in *incoming) (*Context, error) {
	parsed, err := in.parse()
	if err != nil {
		return nil, invalid(err)
	}
	codec := in.codec
	if in.route.protocol {
		codec = nil // JSON in every format
	}
	if err = envelope.CheckElements(codec, parsed.Payload, c.router.opts.Limits.Elements); err != nil {
		return nil, err
	}
	ctx := in.call
	if ctx == nil {
		ctx = c.newContext(in, parsed.CorrelationID)
	}
	if in.undo != nil {
		ctx.SetValue(undoKey{}, in.undo)
	}
	if ctx.message, err = in.route.decodePayload(in.codec, parsed.Payload, ctx.message); err != nil {
		return nil, err
	}
	if err = in.route.validate(ctx.message, c.router.opts.Validate); err != nil {
		return nil, err
	}
	return ctx, nil
}

// decodePayload decodes a payload, which is nil if there is none, into a *M or, if into is nil, into a
// new one.
func (rt *Route) decodePayload(codec Codec, payload []byte, into any) (any, error) {
	if rt.protocol {
		codec = nil // JSON in every format
	}
	switch {
	case payload != nil:
	case rt.noFields:
		codec, payload = nil, []byte("{}")
	case codec == nil:
		return nil, errors.InvalidField("payload", "is missing")
	}
	return rt.decodeInto(codec, slices.Clip(payload), into)
}

// decodeInto decodes a payload into a *M or, if into is nil, into a new one. codec is nil for JSON.
func (rt *Route) decodeInto(codec Codec, payload []byte, into any) (any, error) {
	if into == nil {
		into = reflect.New(rt.message).Interface()
	}
	target := into
	if rt.pointer {
		target = rt.reset(into)
	}
	if rt.ownJSON && codec == nil {
		if target.(envelope.Decoder).DecodeJSON(payload) == nil {
			return into, nil
		}
		target = rt.reset(into)
	}
	return into, envelope.Decode(codec, payload, target, rt.strict)
}

// reset makes a message the zero value, or a pointer to a new zero value, and returns the pointer to
// that.
func (rt *Route) reset(message any) any {
	m := reflect.ValueOf(message).Elem()
	if !rt.pointer {
		m.SetZero()
		return message
	}
	m.Set(reflect.New(rt.message.Elem()))
	return m.Interface()
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

// validate calls the message's own Validate method and then library, which may be nil.
func (rt *Route) validate(m any, library func(any) error) error {
	if rt.pointer {
		m = rt.value(m)
	}
	if v, ok := m.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return invalid(err)
		}
	}
	if library == nil || rt.protocol { // it knows the application's messages only
		return nil
	}
	if !rt.pointer {
		m = rt.value(m)
	}
	return invalid(library(m))
}

// invalid gives an error the code INVALID_ARGUMENT, unless it is nil, has a code, or comes
// from a panic. Like inspect, it must be called by guard.
func invalid(err error) error {
	if err == nil || failure.IsNilPointer(err) {
		return err
	}
	if _, ok := failure.AsType[*errors.Error](err); ok {
		return err
	}
	if _, ok := failure.AsType[*PanicError](err); ok {
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
func (c *Conn) handleEvent(ctx *Context) {
	if ctx.route.concurrent {
		c.startEvent()
		defer c.endEvent()
		c.messages.Yield()
	}
	var failed *inspectedError
	defer func() {
		if failed != nil {
			c.respondFailed(ctx, failed)
		} else {
			c.recordCompleted(ctx.route.name, "")
		}
	}()
	ctx.run(&failed)
}

// handleCall is stage 7 of a call, which gets exactly one answer, at the latest at its
// deadline.
func (c *Conn) handleCall(ctx *Context) {
	var failed *inspectedError
	canceled, returned := false, false
	defer func() {
		defer ctx.call.end(endedByReturn)
		if ctx.route.afterAnswer != nil {
			defer ctx.route.afterAnswer(ctx)
		}
		if canceled {
			return
		}
		if failed == nil && !returned { // an observer has called runtime.Goexit
			failed = internalError(errExited)
		}
		c.respondCall(ctx, failed)
	}()
	if ctx.route.concurrent {
		c.messages.Yield()
	}
	if canceled = ctx.call.isAnswered(); canceled {
		return // the handler of an answered call does not start
	}
	ctx.run(&failed)
	returned = true
}

// errNoReply reports a call whose handler was not called and whose reply was not set.
var errNoReply = errors.New("router: the call has no reply; middleware must call next or SetReply, or return an error")

// respondCall queues the reply of a call or its error, unless the call has been answered. The
// caller wakes the writer. A late reply is dropped, and a late error is only reported.
func (c *Conn) respondCall(ctx *Context, failed *inspectedError) {
	first := c.settleCall(ctx)
	switch {
	case failed != nil && first:
		c.respondFailed(ctx, failed)
	case failed != nil:
		c.reportLate(ctx.route.name, failed)
	case first:
		c.respondReply(ctx)
	}
}

// respondReply encodes and queues the reply of a call, or an error if it cannot be encoded.
func (c *Conn) respondReply(ctx *Context) {
	if c.router.opts.Development {
		ctx.hintReply()
	}
	var failed *inspectedError
	defer func() { // even if a method of the reply calls runtime.Goexit
		if failed != nil {
			c.respondFailed(ctx, failed)
		} else {
			c.recordCompleted(ctx.route.name, "")
		}
	}()
	_ = c.sub.WS.QueueAnswer(func() (reply *wsconn.Frame, err error) {
		c.router.guard(&failed, "reply", ctx.route, func() error {
			reply, err = encodeReply(ctx)
			return err
		})
		if failed != nil {
			return nil, errNotEncoded
		}
		return reply, nil
	})
}

// errNotEncoded ends the sending of a reply that cannot be encoded, also if that is a panic.
var errNotEncoded = errors.New("router: the reply cannot be encoded")

// settleCall records that the call has its answer, and reports whether it had none before. The
// client may use the call's ID again as soon as it receives the answer, so settleCall comes first.
func (c *Conn) settleCall(ctx *Context) bool {
	if !ctx.call.markAnswered() {
		return false
	}
	c.calls.remove(ctx)
	return true
}

// run calls the handler and its middleware, and stores what they return in failed.
func (c *Context) run(failed **inspectedError) {
	if c.conn.router.observer != nil {
		defer c.recordHandled(time.Now())
	}
	c.conn.router.guard(failed, "handler", c.route, func() error { return c.route.run(c) })
}

// recordHandled reports the duration of a handler to observers.
func (c *Context) recordHandled(since time.Time) {
	c.conn.router.observe(Event{Kind: EventHandled, Type: c.route.name, Duration: time.Since(since)})
}
