package router

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
	"github.com/penstock-go/penstock/router/observe"
)

// This file runs stages 1 to 5 of the pipeline, which need no payload: size, head, ingress,
// route and concurrency. They run on the goroutine that reads the connection. Stages 6 and 7
// are in handle.go.

// An incoming is a received message between the goroutine that reads it and the one that
// handles it. It comes from a pool, and its current goroutine owns it.
type incoming struct {
	wsconn.Message

	head    wire.Head
	route   *Route   // nil if the type is not registered
	control string   // the type of a message that the protocol itself handles in stage 5, or ""
	call    *Context // nil if the message is not a call
	codec   Codec    // nil if the message is a JSON envelope

	ctx      context.Context // of the connection, with the span of the message if it has one
	identity *connIdentity   // that ingress functions receive
	undo     *undo           // of ingress functions; nil if there is none
	waits    bool            // in the serial queue, instead of being handled at once

	// What application code that does not return leaves behind; see endExited.
	stage   string           // that may do so, and then the message has no answer; "" after that
	context *Context         // of a message that is decoded
	refusal *failure.Failure // with which the message will be answered
	ended   bool
}

var incomingPool = sync.Pool{New: func() any { return new(incoming) }}

// release returns the message and its buffer to their pools.
func (in *incoming) release() {
	in.releaseBytes()
	*in = incoming{}
	incomingPool.Put(in)
}

// releaseBytes returns the buffer to its pool. The head is not valid after that.
func (in *incoming) releaseBytes() {
	if in.Buffer != nil {
		in.Release()
		in.Message = wsconn.Message{}
	}
}

// maxBytesOf returns the size limit of a message from its first bytes. The transport keeps
// only a little more than that of the message.
func (c *Conn) maxBytesOf(prefix []byte) int64 {
	parse := wire.ParseHeadPrefix
	if c.binary() && c.member.WS.ReadingBinary() {
		parse = wire.ParseBinaryHeadPrefix
	}
	head, _ := parse(prefix)
	if route := c.router.routes[string(head.Type)]; route != nil {
		return route.maxBytes
	}
	return c.router.opts.Limits.MaxMessageBytes
}

// A reader is a goroutine with the right to read a connection.
type reader struct {
	*Conn

	in     *incoming // whose ingress functions or refusal may not return; nil if there is none
	reads  bool      // it has the right, and must not end without another reader
	inline bool      // it may handle a message
	latest *Route    // of the previous message: the next one is often of the same type; nil if there is none
}

// receive runs stages 1 to 5. It returns the message if the caller must handle it next, and
// otherwise nil.
func (r *reader) receive(msg wsconn.Message) *incoming {
	c := r.Conn
	in := incomingPool.Get().(*incoming)
	in.Message, in.identity = msg, c.identity.Load()
	if msg.Binary {
		in.codec = c.codec()
	}
	c.active.Add(1) // before admit reads draining; see Conn.drain
	headErr := r.readHead(in)
	r.in, in.stage, in.ctx = in, "ingress", &c.ctx
	if c.router.spans.IsOn() && in.control == "" {
		c.startMessage(in)
	}
	c.beginCall(in, headErr)
	var refused *failure.Failure
	if limit := c.chargeMessage(in.At); limit != nil {
		refused = limitFailure(*limit).At("ingress")
	} else {
		refused = c.runIngress(in)
	}
	r.in, in.stage = nil, ""
	claimed, refused := r.admit(in, headErr, refused)
	switch {
	case claimed:
		return in
	case refused == nil:
		return nil
	}
	r.in = in
	c.refuseMessage(in, refused)
	r.in = nil
	c.endReceived(in)
	in.release()
	return nil
}

// endReceived ends a message that the reader has refused.
func (c *Conn) endReceived(in *incoming) {
	c.member.WS.Wake()
	in.releaseBytes()
	c.release()
}

// exited lets another goroutine read: application code has not returned.
func (r *reader) exited() {
	if !r.reads {
		return
	}
	defer r.member.WS.ServeElsewhere()
	if in := r.in; in != nil {
		defer r.endReceived(in)
		r.refuseExited(in)
	}
}

// admit decides about a message after ingress. It returns the failure of a refused one, which may be
// that of ingress. Otherwise the message has been queued or answered, unless claimed is true: the caller must
// handle it next.
func (r *reader) admit(in *incoming, headErr error, ingress *failure.Failure) (claimed bool, refused *failure.Failure) {
	limit, option := r.router.opts.Limits.MaxMessageBytes, "router.Limits.MaxMessageBytes"
	if in.route != nil && in.route.maxBytes != limit {
		limit, option = in.route.maxBytes, "router.Route.MaxMessageBytes"
	}
	switch {
	case in.Size > limit:
		return false, limitFailure(LimitExceeded{Kind: LimitPayload, Option: option, Observed: in.Size, Limit: limit, RetryAfter: errors.Never}).At("size")
	case ingress != nil:
		return false, ingress
	case headErr != nil:
		return false, inspector.Inspect(invalid(headErr), "parse")
	case in.control != "":
		return false, r.handleControl(in)
	case r.draining.Load() != notDraining:
		return false, failure.Of(r.drainError()).At("draining")
	case in.route == nil:
		return false, failure.Of(errors.Errorf(errors.Unimplemented, "no handler for this type")).At("route")
	}
	return r.enqueue(in)
}

// beginCall creates the state of a call before ingress, where it may have to wait already: the
// call is answered by its deadline nevertheless.
func (c *Conn) beginCall(in *incoming, headErr error) {
	if headErr != nil || in.route == nil || !in.route.rpc {
		return
	}
	ctx := c.newContext(in, in.head.CorrelationID)
	ctx.call.Of, ctx.call.Timeout = ctx, in.timeout()
	in.call = ctx
	c.calls.Watch(&ctx.call)
}

// newContext returns the Context of a message, without the decoded message.
func (c *Conn) newContext(in *incoming, correlationID []byte) *Context {
	ctx := in.route.newContext()
	ctx.conn, ctx.route, ctx.size, ctx.identity = c, in.route, in.Size, in.identity
	ctx.call.ID, ctx.call.ReceivedAt = string(correlationID), in.At
	if c.router.spans.IsOn() && in.ctx != &c.ctx {
		ctx.call.Begin(in.ctx)
	}
	return ctx
}

// timeout returns the timeout of a call: that of the route, unless the client has asked for a
// shorter one. 0 means that there is none.
func (in *incoming) timeout() time.Duration {
	timeout := in.route.timeout
	if ms := in.head.TimeoutMs; ms > 0 && ms <= int64(maxTimeout/time.Millisecond) {
		if asked := time.Duration(ms) * time.Millisecond; timeout == 0 || asked < timeout {
			return asked
		}
	}
	return timeout
}

// maxTimeout bounds the timeouts that clients ask for. A longer one is like none.
const maxTimeout = 365 * 24 * time.Hour

// readHead is stage 2: it parses the type and the correlation ID, and finds the route.
func (r *reader) readHead(in *incoming) (err error) {
	switch {
	case in.codec != nil && in.Truncated():
		in.head, err = wire.ParseBinaryHeadPrefix(in.Bytes)
	case in.codec != nil:
		in.head, err = wire.ParseBinaryHead(in.Bytes)
	case in.Truncated():
		in.head, err = wire.ParseHeadPrefix(in.Bytes)
	default:
		in.head, err = wire.ParseHead(in.Bytes)
	}
	if err != nil {
		if control := controlOf(&in.head); control != "" && control != protocol.TypeHeartbeat {
			in.head.CorrelationID = nil // it is that of another message
		}
		in.head.Type = nil // a malformed message has no type
		return err
	}
	in.control = controlOf(&in.head)
	if in.control == protocol.TypeAck && r.router.routes[protocol.TypeResume] == nil {
		in.control = "" // nothing that a client could acknowledge
	}
	if in.control == "" {
		if r.latest == nil || r.latest.name != string(in.head.Type) {
			r.latest = r.router.routes[string(in.head.Type)]
		}
		in.route = r.latest
	}
	return nil
}

// reportContext returns the context for reports about the message.
func (in *incoming) reportContext() context.Context {
	if in.context != nil {
		return in.context
	}
	return in.ctx
}

// memory returns how many bytes a waiting message holds.
func (in *incoming) memory() int64 { return int64(len(in.Bytes)) }

// typ returns the message's type if it is registered or defined by the protocol, and otherwise
// "": a client must not choose limiter keys, metric labels or log fields.
func (in *incoming) typ() string {
	if in.route != nil {
		return in.route.name
	}
	return in.control
}

// correlationID returns the identifier by which the client matches an answer, or "". That of a
// control message is the ID of another message.
func (in *incoming) correlationID() string {
	switch {
	case in.context != nil:
		return in.context.call.ID
	case in.control != "" && in.control != protocol.TypeHeartbeat:
		return ""
	}
	in.head.FindMeta(in.Bytes)
	return string(in.head.CorrelationID)
}

// runIngress is stage 3. Messages without a route pass the router's own functions.
func (c *Conn) runIngress(in *incoming) *failure.Failure {
	return c.router.guard("ingress", in.route, func() error {
		fns := c.router.unknownIngress
		if in.route != nil {
			fns = in.route.ingress
		}
		ctx := c.ingressContext(in.typ(), in.identity, in.Size, in.At)
		if len(fns) > 0 && in.route != nil && in.route.work != nil {
			ctx.Work = in.route.work(c, in)
		}
		ctx.undo = &in.undo
		for _, fn := range fns {
			if err := fn(in.ctx, ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// ingressContext returns the argument of ingress functions for a message.
func (c *Conn) ingressContext(typ string, id *connIdentity, size int64, at time.Time) IngressContext {
	return IngressContext{conn: c, Type: typ, ConnID: c.member.ID, IP: c.ip, Identity: id.value(), Size: size, ReceivedAt: at}
}

// enqueue is stage 5. It adds the message to the connection's serial queue, unless the reading goroutine can
// handle it at once.
func (r *reader) enqueue(in *incoming) (claimed bool, refused *failure.Failure) {
	c := r.Conn
	late := in.head.FindMeta(in.Bytes)
	if in.call == nil {
		if failure := c.acknowledge(in); failure != nil {
			return false, failure
		}
	} else if failure := c.admitCall(in, late); failure != nil {
		return false, failure
	}
	if r.inline && !in.route.ownGoroutine && c.messages.Claim() {
		return true, nil
	}
	in.waits = true
	if in.call == nil {
		c.messages.Enqueue(in, time.Time{})
		return false, nil
	}
	ctx := in.call // another goroutine may own in after Enqueue
	deadline, _ := ctx.call.Deadline()
	if !c.messages.Enqueue(in, deadline) {
		c.finishCall(in.route)
		return false, failure.Of(errDeadline).At("deadline")
	}
	if ctx.call.IsAnswered() {
		for _, in := range c.takeWaiting(ctx) {
			c.finishHandling(in.route)
			in.release()
		}
	}
	return false, nil
}

// errDuplicateCall refuses a call whose correlation ID is that of an open call.
var errDuplicateCall = &errors.Error{
	Code: errors.InvalidArgument, Message: "a call with this correlationId has no answer yet; every call must have an ID of its own",
}

// admitCall decides about a call in stage 5. late says that its meta was not known before.
func (c *Conn) admitCall(in *incoming, late bool) *failure.Failure {
	ctx := in.call
	if late && !c.readLateMeta(in) {
		return failure.Of(errDeadline).At("deadline")
	}
	if in.route.stream {
		if failure := in.readCredit(); failure != nil {
			return failure
		}
	}
	if !c.calls.Add(&ctx.call) {
		in.head.CorrelationID = nil // it belongs to the other call
		return failure.Of(errDuplicateCall).At("concurrency")
	}
	if ctx.call.IsAnswered() { // the deadline passed before the call was in the index
		c.calls.Remove(&ctx.call)
		return failure.Of(errDeadline).At("deadline")
	}
	if in.route.stream && c.draining.Load() != notDraining { // drain may have ended the open streams before this one was added
		return failure.Of(c.drainError()).At("draining")
	}
	limit := c.router.opts.Limits.Concurrency
	if n, ok := c.calls.Start(limit); !ok {
		return limitFailure(LimitExceeded{Kind: LimitConcurrency, Option: "router.Limits.Concurrency", Observed: n, Limit: int64(limit)}).At("concurrency")
	}
	if failure := c.acknowledge(in); failure != nil {
		c.calls.Finish()
		return failure
	}
	c.router.hooks.Observe(observe.Event{Kind: observe.Started, Type: in.route.name})
	return nil
}

// readLateMeta completes a call whose meta followed a long payload. The goroutine that answers a
// call at its deadline reads these fields, so the deadline must not be watched meanwhile.
// readLateMeta reports false if the deadline has passed already.
func (c *Conn) readLateMeta(in *incoming) bool {
	k := &in.call.call
	if !c.calls.Unwatch(k) {
		return false
	}
	k.ID, k.Timeout = string(in.head.CorrelationID), in.timeout()
	c.calls.Watch(k)
	return true
}
