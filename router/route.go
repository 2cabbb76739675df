package router

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"time"

	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
)

// A Handler handles a decoded and validated message. The client receives the public part of
// the error; see package errors.
type Handler func(ctx *Context) error

// A Middleware wraps a Handler. It runs code before and after next, or returns an error
// instead of calling next. It is called once per route, before the first message; the Handler
// that it returns must be safe for concurrent use.
type Middleware func(next Handler) Handler

// A Registrar is what messages are registered with: a [*Router] or a [*Group].
type Registrar interface {
	group() *Group
}

// On registers the handler of an event: a message without a reply. A handler is called
// concurrently for different connections. The client receives an answer only if the handler
// returns an error. On panics if M cannot be registered: see [Message].
func On[M Message](to Registrar, handle func(*Context, M) error) *Route {
	position := callerPosition()
	mustHaveHandler(to, handle, position)
	return registerEvent(to, position, receivedTypeOf[M](), func(ctx *Context) error {
		return handle(ctx, *ctx.message.(*M))
	})
}

// RPC registers the handler of a call: a message that is answered by one reply or one error. A
// handler is called concurrently, also for one connection; see [Route.Serial]. RPC panics if M
// or Reply cannot be registered: see [Message].
func RPC[M, Reply Message](to Registrar, handle func(*Context, M) (Reply, error)) *Route {
	position := callerPosition()
	mustHaveHandler(to, handle, position)
	return registerCall(to, position, receivedTypeOf[M](), replyTypeOf[M, Reply](), callHandler(handle))
}

// A Route is a registered message type. Its methods configure how messages of the type are
// handled and return the route. They panic if the router has begun to serve, and are not safe
// for concurrent use.
type Route struct {
	parent   *Group
	name     string
	position string // file:line of the registration

	newContext      func() *Context             // with room for a message, and for a reply
	decoding        envelope.Decoding           // of M
	value           func(message any) Message   // dereferences a *M
	returned        func(place Message) Message // dereferences the pointer to the reply; nil unless the Context has room for it
	replyJSON       envelope.Encoding           // of such a reply
	protocol        bool                        // the message is a call of the protocol, whose payload is always JSON
	run             Handler
	work            func(*Conn, *incoming) Work // of a message; nil if it is zero
	afterAnswer     func(*Context)              // called after the answer of a call has been queued; may be nil
	rpc             bool                        // messages are calls
	concurrent      bool                        // the next message may start before the handler has returned
	stream          bool                        // the calls are streams
	ownGoroutine    bool                        // handlers do not run on the event loop
	skipsMiddleware bool                        // middleware does not run

	ingress  []IngressFunc
	use      []Middleware
	maxBytes int64
	timeout  time.Duration // of a call; 0 means none
	action   LimitAction

	contract routeContract
}

// typ returns the message's type, or "" for a nil route.
func (rt *Route) typ() string {
	if rt == nil {
		return ""
	}
	return rt.name
}

// UseIngress adds ingress functions, which run after those of the router and of the group.
func (rt *Route) UseIngress(fns ...IngressFunc) *Route {
	rt.parent.router.mustNotBeServing("UseIngress")
	rt.ingress = appendNonNil(rt.ingress, fns, "UseIngress")
	return rt
}

// Use adds middleware, which runs inside that of the router and of the group.
func (rt *Route) Use(mws ...Middleware) *Route {
	rt.parent.router.mustNotBeServing("Use")
	rt.use = appendNonNil(rt.use, mws, "Use")
	return rt
}

// MaxMessageBytes limits the size of a message of this type in bytes, including the envelope,
// and overrides Limits.MaxMessageBytes. It panics if n is not positive. If it is above
// Limits.MaxMessageBytes, a longer message must begin with its type.
func (rt *Route) MaxMessageBytes(n int64) *Route {
	rt.parent.router.mustNotBeServing("MaxMessageBytes")
	if n < 1 {
		panic(fmt.Sprintf("router: MaxMessageBytes of %q is %d; it must be positive", rt.name, n))
	}
	rt.maxBytes = n
	return rt
}

// Timeout is the time from receiving a call or stream of this type to its answer. It overrides
// Timeouts.Call, which does not apply to streams. A client may ask for less with meta.timeoutMs.
// Timeout panics if d is not positive, or if the messages are events, which have no deadline.
func (rt *Route) Timeout(d time.Duration) *Route {
	rt.parent.router.mustNotBeServing("Timeout")
	switch {
	case !rt.rpc:
		panic(fmt.Sprintf("router: Timeout of %q, which is an event; only calls have a deadline", rt.name))
	case d <= 0:
		panic(fmt.Sprintf("router: Timeout of %q is %v; it must be positive", rt.name, d))
	}
	rt.timeout = d
	return rt
}

// LimitAction decides how the client is answered when a message of this type exceeds a limit.
// It overrides Options.LimitAction.
func (rt *Route) LimitAction(action LimitAction) *Route {
	rt.parent.router.mustNotBeServing("LimitAction")
	mustBeLimitAction(action)
	rt.action = action
	return rt
}

// Serial makes later messages of the connection wait until the handler has returned. It is the
// default for events.
func (rt *Route) Serial() *Route {
	rt.parent.router.mustNotBeServing("Serial")
	rt.concurrent = false
	return rt
}

// Concurrent starts the handler in the message's turn and lets later messages of the
// connection start before it has returned. It is the default for calls. While as many events as
// Limits.Concurrency are being handled, the next message waits; a call above that limit is refused.
func (rt *Route) Concurrent() *Route {
	rt.parent.router.mustNotBeServing("Concurrent")
	rt.concurrent = true
	return rt
}

// OwnGoroutine starts the handlers of this type on a goroutine of their own. Otherwise a handler runs
// on the event loop that has read the message, and the loop goes on on another goroutine when the
// handler waits, which costs about as much as starting a goroutine. OwnGoroutine is for handlers that
// compute for more than about a millisecond, because those delay the other connections of the loop, and
// for handlers that nearly always wait. It is the default for streams.
//
// These goroutines are used again, as those of event loops are. A handler that calls
// runtime.LockOSThread must unlock the thread before it returns, because later messages run on the same
// goroutine. Options.Development reports handlers that do not.
func (rt *Route) OwnGoroutine() *Route {
	rt.parent.router.mustNotBeServing("OwnGoroutine")
	rt.ownGoroutine = true
	return rt
}

// build prepends the ingress functions and the middleware of the groups, and wraps the
// handler.
func (rt *Route) build() {
	for g := rt.parent; g != nil; g = g.parent {
		rt.ingress = slices.Concat(g.ingress, rt.ingress)
		if !rt.skipsMiddleware {
			rt.use = slices.Concat(g.use, rt.use)
		}
	}
	for _, mw := range slices.Backward(rt.use) {
		if rt.run = mw(rt.run); rt.run == nil {
			panic(fmt.Sprintf("router: a middleware of %q, registered at %s, has returned nil; it must return a Handler", rt.name, rt.position))
		}
	}
}

// A Group is a set of routes that share ingress functions and middleware. It is created by
// [Router.Group]. Its methods panic if the router has begun to serve, and are not safe for
// concurrent use.
type Group struct {
	router  *Router
	parent  *Group // nil for the router's root group
	ingress []IngressFunc
	use     []Middleware
}

// UseIngress adds ingress functions, which run after those of the router and before those of
// the route.
func (g *Group) UseIngress(fns ...IngressFunc) {
	g.router.mustNotBeServing("UseIngress")
	g.ingress = appendNonNil(g.ingress, fns, "UseIngress")
}

// Use adds middleware, which runs inside that of the router and outside that of the route.
func (g *Group) Use(mws ...Middleware) {
	g.router.mustNotBeServing("Use")
	g.use = appendNonNil(g.use, mws, "Use")
}

// Group returns a new group inside this one.
func (g *Group) Group() *Group { return &Group{router: g.router, parent: g} }

func (g *Group) group() *Group { return g }

// mustHaveHandler panics if the Registrar is nil, or a function with the parameters of a handler.
func mustHaveHandler(to Registrar, handle any, position string) {
	v := reflect.ValueOf(handle)
	if to == nil || reflect.ValueOf(to).IsNil() {
		panic(fmt.Sprintf("router: %s: the router or group of %v is nil; create a router with New", position, v.Type().In(1)))
	}
	if v.IsNil() {
		panic(fmt.Sprintf("router: %s: the handler of %v is nil; it must be a function", position, v.Type().In(1)))
	}
}

// appendNonNil appends functions, and panics if one is nil.
func appendNonNil[F any](to, fns []F, by string) []F {
	for i, f := range fns {
		if reflect.ValueOf(f).IsNil() {
			panic(fmt.Sprintf("router: argument %d of %s is nil; it must be a function", i+1, by))
		}
	}
	return append(to, fns...)
}

// register adds a route, which has been registered at a position.
func register(to Registrar, position string, message receivedType, rt *Route) *Route {
	name := mustBeMessage(message.Type, position)
	rt.name, rt.position, rt.parent = name, position, to.group()
	r := rt.parent.router
	r.mustNotBeServing("On, RPC or Stream")
	r.routesMu.Lock()
	defer r.routesMu.Unlock()
	if other, ok := r.routes[name]; ok {
		panic(fmt.Sprintf("router: %q registered at %s and at %s; a type can have only one handler", name, other.position, position))
	}
	r.mustSupport(message.Type, position)
	return addRoute(r, message, rt)
}

// registerEvent adds the route of an event, which has been registered at a position.
func registerEvent(to Registrar, position string, message receivedType, run Handler) *Route {
	return register(to, position, message, &Route{run: run})
}

// registerCall adds the route of a call, which has been registered at a position.
func registerCall(to Registrar, position string, message receivedType, reply replyType, run Handler) *Route {
	name := mustBeMessage(reply.Type, position)
	to.group().router.mustSupport(reply.Type, position)
	answer := routeContract{reply: reply.Type, replyType: name}
	return register(to, position, message, withReply(&Route{rpc: true, concurrent: true, contract: answer, run: run}, message, reply))
}

// addRoute sets the fields that depend on the message's type and the defaults, and adds the route to
// the router.
func addRoute(r *Router, message receivedType, rt *Route) *Route {
	rt.value = message.value
	rt.decoding = envelope.DecodingOf(message.Type, r.opts.RejectUnknownFields && !rt.protocol)
	rt.decoding.JSONOnly = rt.protocol
	switch {
	case rt.newContext != nil:
	case isInline(message.Type):
		rt.newContext = message.newContext
	default:
		rt.newContext = newContext
	}
	if rt.rpc && !rt.stream {
		rt.timeout = r.opts.Timeouts.Call
	}
	rt.maxBytes, rt.action = r.opts.Limits.MaxMessageBytes, r.opts.LimitAction
	rt.contract.request = message.Type
	r.routes[rt.name] = rt
	return rt
}

// withReply sets the fields that depend on the reply of a call, and returns the route.
func withReply(rt *Route, message receivedType, reply replyType) *Route {
	if isInline(message.Type) && isInline(reply.Type) {
		rt.newContext, rt.returned, rt.replyJSON = reply.newContext, reply.returned, envelope.EncodingOf(reply.Type)
	}
	return rt
}

// mustBeMessage panics unless a type that implements [Message] can be registered. It returns the name
// of the messages.
func mustBeMessage(typ reflect.Type, position string) (name string) {
	var zero Message
	switch {
	case typ.Kind() == reflect.Interface:
		panic(fmt.Sprintf("router: %s: %v is an interface; register the type of one message", position, typ))
	case typ.Kind() == reflect.Pointer && typ.Elem().Implements(reflect.TypeFor[Message]()):
		panic(fmt.Sprintf("router: %s: %v is a pointer; register messages by value, as %v, unless MessageType has a pointer receiver", position, typ, typ.Elem()))
	case typ.Kind() == reflect.Pointer:
		zero = reflect.New(typ.Elem()).Interface().(Message)
	default:
		zero = reflect.Zero(typ).Interface().(Message)
	}
	name = zero.MessageType()
	switch {
	case name == "" || len(name) > wire.MaxNameBytes:
		panic(fmt.Sprintf("router: %s: the MessageType of %v is %q; it must have 1 to %d bytes", position, typ, name, wire.MaxNameBytes))
	case protocol.IsReserved(name):
		panic(fmt.Sprintf("router: %s: the MessageType of %v is %q, which is reserved for the protocol", position, typ, name))
	}
	if err := envelope.CheckEncodable(typ); err != nil {
		panic(fmt.Sprintf("router: %s: %v cannot be encoded as JSON: %v", position, typ, err))
	}
	return name
}

// callerPosition returns file:line of the caller of the function that calls it.
func callerPosition() string {
	_, file, line, _ := runtime.Caller(2)
	return fmt.Sprintf("%s:%d", file, line)
}
