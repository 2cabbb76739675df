package router

import (
	"fmt"
	"reflect"
	"runtime/debug"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// An incoming message on its way to its handler.
type incoming struct {
	wsconn.Message

	head  envelope.Head
	route *Route // nil if the type is not registered
}

var incomings = sync.Pool{New: func() any { return new(incoming) }}

// release gives back the message and its buffer.
func (in *incoming) release() {
	in.Release()
	*in = incoming{}
	incomings.Put(in)
}

// limitOf says how much of a message is worth keeping, from its first bytes.
func (r *Router) limitOf(prefix []byte) int64 {
	head, _ := envelope.ParseHeadPrefix(prefix)
	if route := r.routes[string(head.Type)]; route != nil {
		return route.maxBytes
	}
	return r.opts.Limits.MessageBytes
}

// receive takes a message through the stages that do not need its payload, in
// the reading goroutine.
func (c *Conn) receive(msg wsconn.Message) {
	in := incomings.Get().(*incoming)
	in.Message = msg
	c.active.Add(1) // before it is known whether the connection is draining
	err := errExited
	defer func() {
		if err == nil {
			return
		}
		c.turnAway(in, err)
		c.ws.Wake()
		in.release()
		c.done()
		if err == errExited { //nolint:errorlint // never wrapped
			go c.serve()
		}
	}()
	err = c.enter(in)
}

// enter is stages 1 to 5. An error is the refusal; without one, the message has
// been passed on.
func (c *Conn) enter(in *incoming) error {
	headErr := in.readHead(c.router.routes)
	limit := c.router.opts.Limits.MessageBytes
	if in.route != nil {
		limit = in.route.maxBytes
	}
	admission := c.admit(in)
	switch {
	case in.Size > limit:
		return &LimitExceeded{Kind: LimitPayload, Observed: in.Size, Limit: limit, RetryAfter: errors.Never}
	case admission != nil:
		return admission
	case headErr != nil:
		return invalid(headErr)
	case c.draining.Load():
		return errDraining
	case in.heartbeat():
		_ = c.queueWait(encodeHeartbeatAck(in.At))
		c.ws.Wake()
		c.answered(typeHeartbeat, "")
		in.release()
		c.done()
		return nil
	case in.route == nil:
		return errors.Errorf(errors.Unimplemented, "no handler for this type")
	}
	return c.pass(in)
}

var errDraining = &errors.Error{Code: errors.Unavailable, Message: "server is restarting"}

func (in *incoming) readHead(routes map[string]*Route) (err error) {
	if in.Truncated() {
		in.head, err = envelope.ParseHeadPrefix(in.Bytes)
	} else {
		in.head, err = envelope.ParseHead(in.Bytes)
	}
	if err != nil {
		in.head.Type = nil // whatever it claims to be
		return err
	}
	in.route = routes[string(in.head.Type)]
	return nil
}

// bytes is how much memory a waiting message holds.
func (in *incoming) bytes() int64 { return int64(len(in.Bytes)) }

func (in *incoming) heartbeat() bool { return string(in.head.Type) == typeHeartbeat }

// typ is what the outside gets to see of the message's type.
func (in *incoming) typ() string {
	switch {
	case in.route != nil:
		return in.route.name
	case in.heartbeat():
		return typeHeartbeat
	default:
		return ""
	}
}

// admit is stage 3.
func (c *Conn) admit(in *incoming) (err error) {
	defer c.router.recoverTo(&err, in.route, "ingress")
	fns := c.router.unknown
	if in.route != nil {
		fns = in.route.ingress
	}
	ctx := c.ingress(in.typ(), in.Size, in.At)
	for _, fn := range fns {
		if err := fn(c.ctx, ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *Conn) ingress(typ string, size int64, at time.Time) IngressContext {
	return IngressContext{Type: typ, ConnID: c.id, IP: c.ip, Identity: c.identity, Size: size, ReceivedAt: at}
}

// pass is stage 5: it hands the message to the connection's lane.
func (c *Conn) pass(in *incoming) error {
	if in.route.rpc {
		limit := int64(c.router.opts.Limits.InFlight)
		if n := c.inFlight.Add(1); n > limit {
			c.inFlight.Add(-1)
			return &LimitExceeded{Kind: LimitInFlight, Observed: n, Limit: limit}
		}
	}
	if in.route.rpc {
		c.router.observe(Event{Kind: EventStarted, Type: in.route.name})
	}
	c.messages.queue(in)
	return nil
}

// handle is stages 6 and 7, on a goroutine of the connection's lane. What a client
// has sent before it left is handled, as it would be had the client stayed.
func (c *Conn) handle(in *incoming) {
	route := in.route
	defer c.handled(route)
	switch {
	case !in.route.rpc:
	case c.ctx.Err() != nil: // nobody is left to answer
		c.answered(in.route.name, errors.Cancelled)
		in.release()
		return
	case time.Since(in.At) >= c.watch.timeout:
		c.turnAway(in, errLate)
		in.release()
		return
	}
	ctx := c.decoded(in)
	if ctx == nil {
		return
	}
	if route.beside {
		c.reportsHaveRoom()
		c.messages.letGo()
	}
	if route.rpc {
		c.handleCall(ctx)
	} else {
		c.handleEvent(ctx)
	}
}

// errLate is of a call whose time was up before it had its turn, or before it was answered.
var errLate = &errors.Error{Code: errors.DeadlineExceeded, Message: bareMessage(errors.DeadlineExceeded)}

// errExited is of a handler that does not return, without a panic.
var errExited = errors.New("router: runtime.Goexit was called, as FailNow of package testing does")

// handleEvent is stage 7 of a message without a reply.
func (c *Conn) handleEvent(ctx *Context) {
	err := errExited
	defer func() {
		if err != nil {
			c.answerFailed(ctx, err)
		} else {
			c.answered(ctx.route.name, "")
		}
	}()
	err = ctx.run()
}

// answered tells what has become of a message.
func (c *Conn) answered(typ string, code errors.Code) {
	c.router.observe(Event{Kind: EventAnswered, Type: typ, Code: code})
}

func (c *Conn) handled(route *Route) {
	if route.rpc {
		c.inFlight.Add(-1)
		c.router.observe(Event{Kind: EventEnded, Type: route.name})
	}
	c.done()
}

// decoded is stage 6. It returns nil if the message was turned away.
func (c *Conn) decoded(in *incoming) (ctx *Context) {
	err := errExited
	defer func() {
		if err != nil {
			c.turnAway(in, err)
		}
		in.release()
	}()
	ctx, err = c.decode(in)
	return ctx
}

func (c *Conn) decode(in *incoming) (_ *Context, err error) {
	defer c.router.recoverTo(&err, in.route, "decode")
	frame, err := envelope.Parse(in.Bytes)
	if err != nil {
		return nil, invalid(err)
	}
	payload := frame.Payload
	if payload == nil {
		if !in.route.empty {
			return nil, errors.InvalidField("payload", "is missing")
		}
		payload = []byte("{}")
	}
	m, err := in.route.decode(payload)
	if err != nil {
		return nil, err
	}
	if err := in.route.validate(m, c.router.opts.Validate); err != nil {
		return nil, err
	}
	return &Context{
		conn:          c,
		route:         in.route,
		message:       m,
		correlationID: string(frame.CorrelationID),
		receivedAt:    in.At,
		size:          in.Size,
	}, nil
}

func (rt *Route) validate(m any, library func(any) error) error {
	if v, ok := m.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return invalid(err)
		}
	}
	if library == nil {
		return nil
	}
	return invalid(library(rt.value(m)))
}

// invalid gives an error the code INVALID_ARGUMENT, unless it has one or is nil.
func invalid(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*errors.Error](err); ok {
		return err
	}
	if p, ok := errors.AsType[*PanicError](err); ok {
		return p
	}
	return &errors.Error{
		Code:    errors.InvalidArgument,
		Message: err.Error(),
		Details: map[string]any{"reason": err.Error()},
	}
}

// handleCall is stage 7 of an RPC: one answer, by its deadline.
func (c *Conn) handleCall(ctx *Context) {
	c.watch.add(ctx)
	err := errExited
	defer func() {
		c.watch.remove(ctx)
		if err == nil && ctx.reply == nil {
			err = errNoReply
		}
		c.answer(ctx, err)
		ctx.call.end()
	}()
	err = ctx.run()
}

var errNoReply = errors.New("router: a middleware has neither called the handler nor set a reply")

// answer sends the reply of an RPC or its error, whichever comes first. It leaves
// when somebody wakes the connection's writer. Of an error that comes too late, the client
// sees nothing.
func (c *Conn) answer(ctx *Context, err error) {
	if !ctx.call.take() {
		c.late(ctx, err)
		return
	}
	if err == nil {
		var frame *wsconn.Frame
		if frame, err = encodeReply(ctx); err == nil {
			_ = c.queueWait(frame)
			c.answered(ctx.route.name, "")
			return
		}
	}
	c.answerFailed(ctx, err)
}

// late reports an error that comes too late.
func (c *Conn) late(ctx *Context, err error) {
	if exceeded, ok := errors.AsType[*LimitExceeded](err); ok {
		c.exceeded(ctx.route.name, *exceeded)
	} else if err != nil {
		c.router.fail(c, ctx.route.name, err)
	}
}

// run calls the handler inside its middleware. A panic becomes an error.
func (c *Context) run() (err error) {
	if c.conn.router.observer != nil {
		defer c.timed(time.Now())
	}
	defer c.conn.router.recoverTo(&err, c.route, "handler")
	return c.route.run(c)
}

func (c *Context) timed(since time.Time) {
	c.conn.router.observe(Event{Kind: EventHandled, Type: c.route.name, Duration: time.Since(since)})
}

// recoverTo makes a panic an error, and an error of a nil pointer, which nobody could ask for its
// code. The route is nil if there is none.
func (r *Router) recoverTo(err *error, route *Route, where string) {
	if isNilPointer(*err) {
		*err = fmt.Errorf("router: the error of %s is a nil %T; return nil itself", where, *err)
	}
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: debug.Stack()}
		panicked := Event{Kind: EventPanicked, Reason: where}
		if route != nil {
			panicked.Type = route.name
		}
		r.observe(panicked)
	}
}

func isNilPointer(err error) bool {
	if err == nil {
		return false
	}
	v := reflect.ValueOf(err)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// correlationID returns what a refusal can be matched by, or "".
func (in *incoming) correlationID() string {
	return string(in.head.FindCorrelationID(in.Bytes))
}
