package router

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// A Router is an [http.Handler] that upgrades requests to WebSocket connections
// and gives their messages to handlers. Make one with [New], register handlers
// with [On] and [RPC], then serve; it cannot be changed any more once the first
// request has come. Its other methods are safe for concurrent use.
type Router struct {
	root      Group
	opts      Options
	origin    originPolicy
	transport wsconn.Options

	build    func() // lays out the stages, once
	serving  atomic.Bool
	routesMu sync.Mutex // a route, which Types may be asked about meanwhile
	routes   map[string]*Route
	// unknown are the stages for types that nobody registered.
	unknownIngress []IngressFunc

	conns    registry
	topics   topics
	session  broker.Session     // to the other nodes
	events   executor.FuncQueue // of hooks that are about no connection
	observer func(Event)        // nil if nobody observes
	inbound  executor.ByteBudget

	pendingLogs atomic.Int32 // of panics under locks, in events

	shards [connShards]connShard
}

// A shared is what some of the connections have in common, so that not all of them
// wait for one lock.
type connShard struct {
	deadlines deadlineQueue
	pool      executor.Pool
}

const connShards = 16

// New returns a router. Nil options are the defaults. It panics if an option
// makes no sense.
func New(opts *Options) *Router {
	r := &Router{opts: opts.withDefaults(), routes: map[string]*Route{}}
	r.origin = parseOrigins(r.opts.Origins)
	r.transport = transportOptions(&r.opts)
	r.root.router = r
	r.build = sync.OnceFunc(r.buildRoutes)
	r.conns.init(r.opts.Limits)
	r.inbound.MaxBytes = r.opts.Limits.InboundBytesTotal
	r.topics.init(r)
	for i := range r.shards {
		r.shards[i].deadlines.timeout = r.opts.Timeouts.Call
	}
	r.connectBroker()
	return r
}

// UseIngress adds functions that every message must pass, in this order, before
// its payload is read. Those of a group and of a route come after them.
func (r *Router) UseIngress(fns ...IngressFunc) { r.root.UseIngress(fns...) }

// Use wraps the handlers of all routes: the first middleware is the outermost.
// Those of a group and of a route are inside it.
func (r *Router) Use(mws ...Middleware) { r.root.Use(mws...) }

// Group returns an empty group of routes.
func (r *Router) Group() *Group { return r.root.Group() }

func (r *Router) group() *Group { return &r.root }

// Types iterates over the registered message types, in no order.
func (r *Router) Types() iter.Seq[string] {
	r.routesMu.Lock()
	defer r.routesMu.Unlock()
	return slices.Values(slices.Collect(maps.Keys(r.routes)))
}

// Publish sends a message to all connections that subscribe to topic, on all nodes. On
// one node, each gets the messages of one topic in one order; what one goroutine
// publishes arrives everywhere in the order in which it did. It does not wait for
// other nodes, and does not fail if they are out of reach.
func (r *Router) Publish(topic string, m Message) error {
	return r.topics.publish(topic, nil, m, true)
}

// PublishLocal is Publish for the connections of this node only, but for one, which may
// be nil.
func (r *Router) PublishLocal(topic string, m Message, except *Conn) error {
	return r.topics.publish(topic, except, m, false)
}

// Conn returns the open connection with this id, or nil.
func (r *Router) Conn(id string) *Conn { return r.conns.byID(id) }

// Conns iterates over the connections that are open when it is called.
func (r *Router) Conns() iter.Seq[*Conn] { return r.conns.all() }

// SendToUser sends a message to all connections that a user has on this node, and returns
// how many there are. An anonymous user has none.
func (r *Router) SendToUser(tenantID, userID string, m Message) (int, error) {
	conns := r.conns.ofUser(userKey{tenantID, userID})
	return len(conns), sendAll(conns, m)
}

// change panics once the router has begun to serve.
func (r *Router) mustNotBeServing(what string) {
	if r.serving.Load() {
		panic(fmt.Sprintf("router: %s called after the router began to serve", what))
	}
}

// compile lays out every route's stages.
func (r *Router) buildRoutes() {
	r.serving.Store(true)
	r.unknownIngress = r.root.ingress
	for _, route := range r.routes {
		route.build()
	}
}
