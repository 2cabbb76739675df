package router

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"

	"github.com/penstock-go/penstock/internal/wire"
)

// A Handler handles a decoded, validated message. The error goes to the client;
// see package errors for how much of it.
type Handler func(ctx *Context) error

// A Middleware wraps a Handler: what it does before and after next surrounds
// the handling of every message.
type Middleware func(next Handler) Handler

// A Registrar is where messages are registered: a [*Router] or a [*Group].
type Registrar interface {
	group() *Group
}

// On registers the handler of a message without a reply.
func On[M Message](to Registrar, handle func(*Context, M) error) *Route {
	mustHaveHandler[M](handle != nil, callerPosition(1))
	return register[M](to, &Route{run: func(ctx *Context) error {
		return handle(ctx, *ctx.message.(*M))
	}})
}

// RPC registers the handler of a message that is answered: by the reply that it
// returns, or by its error.
func RPC[M, Reply Message](to Registrar, handle func(*Context, M) (Reply, error)) *Route {
	mustBeMessage[Reply](callerPosition(1))
	mustHaveHandler[M](handle != nil, callerPosition(1))
	return register[M](to, &Route{rpc: true, concurrent: true, run: func(ctx *Context) error {
		reply, err := handle(ctx, *ctx.message.(*M))
		if err != nil {
			return err
		}
		ctx.reply = reply
		return nil
	}})
}

// A Route is a registered message. Its methods narrow how it is handled; they
// must be called before the router serves.
type Route struct {
	parent   *Group
	name     string
	position string // file:line of the registration

	decode     func(payload []byte) (any, error) // into a new *M
	value      func(message any) Message         // what such a pointer points to
	noFields   bool                              // the message has no fields, so its payload may be absent
	run        Handler
	rpc        bool
	concurrent bool // runs beside what follows it

	ingress  []IngressFunc
	use      []Middleware
	maxBytes int64
	action   LimitAction
}

// typ returns the message's name; a nil route has none.
func (rt *Route) typ() string {
	if rt == nil {
		return ""
	}
	return rt.name
}

// UseIngress adds functions that the route's messages must pass, after those of
// the router and of its group.
func (rt *Route) UseIngress(fns ...IngressFunc) *Route {
	rt.parent.router.mustNotBeServing("UseIngress")
	rt.ingress = appendNonNil(rt.ingress, fns, "UseIngress")
	return rt
}

// Use wraps the route's handler, inside the middleware of the router and of its
// group.
func (rt *Route) Use(mws ...Middleware) *Route {
	rt.parent.router.mustNotBeServing("Use")
	rt.use = appendNonNil(rt.use, mws, "Use")
	return rt
}

// MaxMessageBytes bounds a message of this type, envelope included, in place of
// Limits.MaxMessageBytes. It may be more than that, up to Limits.MaxReadBytes; then only
// messages that begin with their type may be longer than Limits.MaxMessageBytes.
func (rt *Route) MaxMessageBytes(n int64) *Route {
	rt.parent.router.mustNotBeServing("MaxBytes")
	if most := rt.parent.router.opts.Limits.MaxReadBytes; n < 1 || n > most {
		panic(fmt.Sprintf("router: MaxBytes of %q is %d; it must be from 1 to Limits.MaxReadBytes, %d", rt.name, n, most))
	}
	rt.maxBytes = n
	return rt
}

// LimitAction is what the client gets for a message of this type over a limit, in
// place of Options.LimitAction.
func (rt *Route) LimitAction(action LimitAction) *Route {
	rt.parent.router.mustNotBeServing("OnExceeded")
	mustBeLimitAction(action)
	rt.action = action
	return rt
}

// Serial makes the connection's later messages wait until this one is handled.
// It is what messages without a reply do anyway.
func (rt *Route) Serial() *Route {
	rt.parent.router.mustNotBeServing("Serial")
	rt.concurrent = false
	return rt
}

// Concurrent starts the handler in the message's turn and then goes on with the
// connection's later messages. It is what an RPC does anyway.
func (rt *Route) Concurrent() *Route {
	rt.parent.router.mustNotBeServing("Concurrent")
	rt.concurrent = true
	return rt
}

// compile puts the stages of the groups above in front of the route's own.
func (rt *Route) build() {
	for g := rt.parent; g != nil; g = g.parent {
		rt.ingress = slices.Concat(g.ingress, rt.ingress)
		rt.use = slices.Concat(g.use, rt.use)
	}
	for _, mw := range slices.Backward(rt.use) {
		if rt.run = mw(rt.run); rt.run == nil {
			panic(fmt.Sprintf("router: a middleware of %q, registered at %s, has returned nil", rt.name, rt.position))
		}
	}
}

// A Group is a set of routes with ingress functions and middleware in common.
type Group struct {
	router  *Router
	parent  *Group // nil for the router's own
	ingress []IngressFunc
	use     []Middleware
}

// UseIngress adds functions that the messages of the group's routes must pass,
// after those of the router and before those of the route.
func (g *Group) UseIngress(fns ...IngressFunc) {
	g.router.mustNotBeServing("UseIngress")
	g.ingress = appendNonNil(g.ingress, fns, "UseIngress")
}

// Use wraps the handlers of the group's routes, inside the router's middleware.
func (g *Group) Use(mws ...Middleware) {
	g.router.mustNotBeServing("Use")
	g.use = appendNonNil(g.use, mws, "Use")
}

// Group returns a group inside this one.
func (g *Group) Group() *Group { return &Group{router: g.router, parent: g} }

func (g *Group) group() *Group { return g }

func mustHaveHandler[M Message](handles bool, position string) {
	if !handles {
		panic(fmt.Sprintf("router: %s: the handler of %v is nil", position, reflect.TypeFor[M]()))
	}
}

// added appends functions that must not be nil.
func appendNonNil[F any](to, fns []F, by string) []F {
	for i, f := range fns {
		if reflect.ValueOf(f).IsNil() {
			panic(fmt.Sprintf("router: argument %d of %s is nil; it must be a function", i+1, by))
		}
	}
	return append(to, fns...)
}

func register[M Message](to Registrar, rt *Route) *Route {
	position := callerPosition(2)
	name, fields := mustBeMessage[M](position)
	rt.parent = to.group()
	r := rt.parent.router
	r.mustNotBeServing("On or RPC")
	r.routesMu.Lock()
	defer r.routesMu.Unlock()
	if other, ok := r.routes[name]; ok {
		panic(fmt.Sprintf("router: %q registered at %s and at %s", name, other.position, position))
	}
	rt.name, rt.position, rt.noFields = name, position, fields == 0
	rt.value = func(message any) Message { return *message.(*M) }
	rt.decode = func(payload []byte) (any, error) {
		m := new(M)
		return m, unmarshal(payload, m)
	}
	rt.maxBytes, rt.action = r.opts.Limits.MaxMessageBytes, r.opts.LimitAction
	r.routes[name] = rt
	return rt
}

// mustBeMessage panics unless M can travel, and returns its name and how many
// fields it has, or -1 if it is not a struct.
func mustBeMessage[M Message](position string) (name string, fields int) {
	typ := reflect.TypeFor[M]()
	if typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Interface {
		panic(fmt.Sprintf("router: %s: %v is not a value; messages are registered by value", position, typ))
	}
	var zero M
	name = zero.MessageType()
	switch {
	case name == "" || len(name) > wire.MaxNameBytes:
		panic(fmt.Sprintf("router: %s: the name of %v, %q, must have 1 to %d bytes", position, typ, name, wire.MaxNameBytes))
	case wire.Reserved(name):
		panic(fmt.Sprintf("router: %s: the name of %v, %q, is reserved", position, typ, name))
	}
	if err := checkEncodable(typ, map[reflect.Type]bool{}); err != nil {
		panic(fmt.Sprintf("router: %s: %v cannot travel: %v", position, typ, err))
	}
	if typ.Kind() != reflect.Struct {
		return name, -1
	}
	return name, typ.NumField()
}

func callerPosition(skip int) string {
	_, file, line, _ := runtime.Caller(skip + 1)
	return fmt.Sprintf("%s:%d", file, line)
}
