package router

import (
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// An incoming message on its way to its handler.
type incoming struct {
	wsconn.Message

	head  wire.Head
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
	head, _ := wire.ParseHeadPrefix(prefix)
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
	var failed *publicError
	defer func() {
		if failed != nil {
			c.turnAwayUnread(in, failed)
		}
	}()
	headErr := in.readHead(c.router.routes)
	c.admit(in, &failed)
	failed = c.enter(in, headErr, failed)
}

// turnAwayUnread turns away a message in the reading goroutine. If that ends, because
// application code has called runtime.Goexit, another reads on.
func (c *Conn) turnAwayUnread(in *incoming, failed *publicError) {
	ends := true
	defer func() {
		c.ws.Wake()
		in.release()
		c.done()
		if ends {
			go c.serve()
		}
	}()
	c.turnAway(in, failed)
	ends = failed.exited
}

// enter is what ingress does not see of stages 1 to 5. It returns the refusal, which may be
// that of ingress; without one, the message has been passed on.
func (c *Conn) enter(in *incoming, headErr error, admission *publicError) *publicError {
	limit := c.router.opts.Limits.MessageBytes
	if in.route != nil {
		limit = in.route.maxBytes
	}
	switch {
	case in.Size > limit:
		return limited(LimitExceeded{Kind: LimitPayload, Observed: in.Size, Limit: limit, RetryAfter: errors.Never})
	case admission != nil:
		return admission
	case headErr != nil:
		return inspect(invalid(headErr), "")
	case c.draining.Load():
		return inspect(errDraining, "")
	case in.heartbeat():
		_ = c.queueWait(encodeHeartbeatAck(in.At))
		c.ws.Wake()
		c.answered(wire.TypeHeartbeat, "")
		in.release()
		c.done()
		return nil
	case in.route == nil:
		return inspect(errors.Errorf(errors.Unimplemented, "no handler for this type"), "")
	}
	return c.pass(in)
}

var errDraining = &errors.Error{Code: errors.Unavailable, Message: "server is restarting"}

func (in *incoming) readHead(routes map[string]*Route) (err error) {
	if in.Truncated() {
		in.head, err = wire.ParseHeadPrefix(in.Bytes)
	} else {
		in.head, err = wire.ParseHead(in.Bytes)
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

func (in *incoming) heartbeat() bool { return string(in.head.Type) == wire.TypeHeartbeat }

// typ is what the outside gets to see of the message's type.
func (in *incoming) typ() string {
	switch {
	case in.route != nil:
		return in.route.name
	case in.heartbeat():
		return wire.TypeHeartbeat
	default:
		return ""
	}
}

// admit is stage 3.
func (c *Conn) admit(in *incoming, failed **publicError) {
	c.router.guard(failed, "ingress", in.route, func() error {
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
	})
}

func (c *Conn) ingress(typ string, size int64, at time.Time) IngressContext {
	return IngressContext{Type: typ, ConnID: c.id, IP: c.ip, Identity: c.identity, Size: size, ReceivedAt: at}
}

// pass is stage 5: it hands the message to the connection's serial queue.
func (c *Conn) pass(in *incoming) *publicError {
	if in.route.rpc {
		limit := int64(c.router.opts.Limits.InFlight)
		if n := c.inFlight.Add(1); n > limit {
			c.inFlight.Add(-1)
			return limited(LimitExceeded{Kind: LimitInFlight, Observed: n, Limit: limit})
		}
	}
	if in.route.rpc {
		c.router.observe(Event{Kind: EventStarted, Type: in.route.name})
	}
	c.messages.Enqueue(in)
	return nil
}

// handle is stages 6 and 7, on a goroutine of the connection's serial queue. What a client
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
		c.turnAway(in, inspect(errLate, ""))
		in.release()
		return
	}
	ctx := c.decoded(in)
	if ctx == nil {
		return
	}
	if route.beside {
		c.reportsHaveRoom()
		c.messages.Yield()
	}
	if route.rpc {
		c.handleCall(ctx)
	} else {
		c.handleEvent(ctx)
	}
}

// errLate is of a call whose time was up before it had its turn, or before it was answered.
var errLate = &errors.Error{Code: errors.DeadlineExceeded, Message: bareMessage(errors.DeadlineExceeded)}

// errExited is of application code that does not return, without a panic.
var errExited = errors.New("router: runtime.Goexit was called, as FailNow of package testing does")

// handleEvent is stage 7 of a message without a reply.
func (c *Conn) handleEvent(ctx *Context) {
	var failed *publicError
	defer func() {
		if failed != nil {
			c.answerFailed(ctx, failed)
		} else {
			c.answered(ctx.route.name, "")
		}
	}()
	ctx.run(&failed)
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
	var failed *publicError
	defer func() {
		defer in.release()
		if failed != nil {
			c.turnAway(in, failed)
		}
	}()
	c.router.guard(&failed, "decode", in.route, func() (err error) {
		ctx, err = c.decode(in)
		return err
	})
	return ctx
}

func (c *Conn) decode(in *incoming) (*Context, error) {
	frame, err := wire.Parse(in.Bytes)
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

// invalid gives an error the code INVALID_ARGUMENT, unless it has one, is nil or comes from
// a panic. Like inspect, it must be called by guard.
func invalid(err error) error {
	if err == nil || isNilPointer(err) {
		return err
	}
	if _, ok := find[*errors.Error](err); ok {
		return err
	}
	if _, ok := find[*PanicError](err); ok {
		return err
	}
	limit, isLimit := find[*LimitExceeded](err)
	refusal, isRefusal := find[*CloseError](err)
	if isLimit && limit == nil || isRefusal && refusal == nil {
		return err
	}
	text := err.Error()
	return &errors.Error{
		Code:    errors.InvalidArgument,
		Message: text,
		Details: map[string]any{"reason": text},
	}
}

// handleCall is stage 7 of an RPC: one answer, by its deadline.
func (c *Conn) handleCall(ctx *Context) {
	c.watch.add(ctx)
	var reply *wsconn.Frame
	var failed *publicError
	defer func() {
		c.watch.remove(ctx)
		defer ctx.call.end()
		c.answer(ctx, reply, failed)
	}()
	ctx.run(&failed)
	if failed != nil {
		return
	}
	c.router.guard(&failed, "reply", ctx.route, func() (err error) {
		reply, err = encodeReply(ctx)
		return err
	})
}

var errNoReply = errors.New("router: a middleware has neither called the handler nor set a reply")

// answer sends the reply of an RPC or, if it has failed, its error, unless another answer
// was first. It leaves when somebody wakes the connection's writer. Of an error that comes
// too late, the client sees nothing.
func (c *Conn) answer(ctx *Context, reply *wsconn.Frame, failed *publicError) {
	first := ctx.call.take()
	switch {
	case failed != nil && first:
		c.answerFailed(ctx, failed)
	case failed != nil && failed.limited:
		c.exceeded(ctx.route.name, failed.limit)
	case failed != nil:
		c.router.fail(c, ctx.route.name, failed)
	case first:
		_ = c.queueWait(reply)
		c.answered(ctx.route.name, "")
	default:
		reply.Release()
	}
}

// run calls the handler inside its middleware.
func (c *Context) run(failed **publicError) {
	if c.conn.router.observer != nil {
		defer c.timed(time.Now())
	}
	c.conn.router.guard(failed, "handler", c.route, func() error { return c.route.run(c) })
}

func (c *Context) timed(since time.Time) {
	c.conn.router.observe(Event{Kind: EventHandled, Type: c.route.name, Duration: time.Since(since)})
}

// correlationID returns what a refusal can be matched by, or "".
func (in *incoming) correlationID() string {
	return string(in.head.FindCorrelationID(in.Bytes))
}
