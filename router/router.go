package router

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/access"
	"github.com/penstock-go/penstock/internal/ask"
	"github.com/penstock-go/penstock/internal/calls"
	"github.com/penstock-go/penstock/internal/declared"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/handshake"
	"github.com/penstock-go/penstock/internal/hints"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/member"
	"github.com/penstock-go/penstock/internal/present"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/report"

	"github.com/penstock-go/penstock/internal/session"

	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/wsconn"
	"github.com/penstock-go/penstock/router/observe"
)

// A Router is an [http.Handler] that upgrades requests to WebSocket connections and passes
// their messages to handlers. Create one with [New], register handlers with [On] and [RPC],
// then serve. Once it has received its first request, it cannot be configured further: methods
// that do so panic. All other methods are safe for concurrent use.
type Router struct {
	root      Group
	opts      Options
	formats   envelope.Formats
	origins   handshake.Origins
	transport wsconn.Options

	build          func() // builds the routes, once
	serving        atomic.Bool
	fallback       bool       // HTTPFallback was called
	routesMu       sync.Mutex // guards routes until the router serves
	routes         map[string]*Route
	unknownIngress []IngressFunc     // for types that are not registered
	declared       declared.Messages // for Describe

	conns        registry.Conns[*Conn]
	topics       topic.Topics
	members      member.Node
	topicOptions map[*topic.Pattern]declaredTopic // read-only once the router serves
	node         broker.Node                      // publishes to other nodes
	asks         ask.Node                         // of this node to others, and of others to this one
	nodeTopic    string                           // carries the packets of asks to this node
	// histories stores publications of topics with a History; nil if Options.Broker cannot, or before useHistories.
	histories broker.Histories
	access    access.Node
	sessions  *session.Node
	resume    enabledResume // zero without sessions
	away      *present.Table

	// Topic and ResumeOptions set these, so that a program without them does not link what they call.
	subscribeClient func(context.Context, member.Conn, *topic.Pattern, protocol.Subscribe, topic.JoinRequest) (protocol.Subscribed, error)
	startTopic      func(c member.Conn, name string)
	publishStored   func(ctx context.Context, name string, m Message, opts PublishOption) error
	openSession     func(context.Context, member.Conn) *protocol.SessionGrant

	shutdowns  host.Shutdowns // read-only once the router serves
	accessEnds host.AccessEnds
	inbound    executor.ByteBudget // received messages that wait, of all connections

	spans report.Tracer
	log   report.Log
	hooks report.Hooks

	unhealthy        atomic.Bool // Shutdown has begun
	upgradedRefusals wsconn.Refusals
	refusals         report.Refusals
	hints            *hints.Hints // nil without Options.Development
	proxyWarning     hints.ProxyWarning

	reconnectSpread atomic.Int64 // nanoseconds, of the delays in reconnectReason

	created time.Time // the base of times of calls, of connection numbers and of the buckets of rates

	shards [connShards]connShard
}

// A connShard is shared by some of the connections, which reduces contention for its locks.
type connShard struct {
	deadlines calls.Deadlines[Context]
	pool      executor.Pool
	messages  executor.Config // of the queues of received messages
}

// connShards is the number of shards. Each connection gets a random one.
const connShards = 16

// maxInboundBytes bounds the received messages of one connection that wait.
const maxInboundBytes = 1 << 20

// New returns a router. If opts is nil, the defaults are used; otherwise opts is copied. New
// panics if an option is invalid.
func New(opts *Options) *Router {
	r := &Router{opts: opts.withDefaults(), routes: map[string]*Route{}, topicOptions: map[*topic.Pattern]declaredTopic{}, created: time.Now()}
	r.formats = newFormats(r.opts.Codecs, r.opts.Subprotocols)
	r.origins = handshake.ParseOrigins(r.opts.Origins)
	r.transport = transportOptions(&r.opts, &r.inbound)
	r.transport.OnWrite = r.observeWrite
	r.root.router = r
	r.build = sync.OnceFunc(r.buildRoutes)
	r.initConns()
	r.inbound.MaxBytes = r.opts.Limits.InboundBytes
	for i := range r.shards {
		r.shards[i].deadlines.Base, r.shards[i].deadlines.Expired = r.created, expireCall
		r.shards[i].messages = executor.Config{
			MaxWaiting: maxWaitingJobs, MaxBytes: min(r.opts.Limits.InboundBytes, maxInboundBytes), Budget: &r.inbound, Pool: &r.shards[i].pool,
		}
	}
	r.away = present.New(r.opts.Limits.SessionsPerUser, r.opts.Limits.ConnsPerIP)
	r.topics.Init(r.topicConfig())
	r.refusals.Init()
	r.initLog()
	r.spans = report.Tracer{Tracer: r.opts.Tracer, Panicked: func(v any) {
		r.hooks.Observe(observe.Event{Kind: observe.Panicked, Reason: "Tracer"})
		r.hooks.PanickedLater("Tracer", v)
	}}
	r.registerProtocolRoutes()
	r.connectBroker()
	if r.opts.Resume != nil {
		r.opts.Resume.enableSessions(r)
	}
	r.initSessions()
	r.initAccess()
	if r.opts.UserHistory != nil {
		r.opts.UserHistory.enableUserLogs(r)
	}
	r.receiveFromNodes()
	return r
}

// UseIngress adds ingress functions, which run for every message before its payload is
// decoded, in this order and before those of the group and of the route.
func (r *Router) UseIngress(fns ...IngressFunc) { r.root.UseIngress(fns...) }

// Use adds middleware to all routes. The first one is the outermost; that of the group and of
// the route is inside.
func (r *Router) Use(mws ...Middleware) { r.root.Use(mws...) }

// Group returns a new group of routes.
func (r *Router) Group() *Group { return r.root.Group() }

func (r *Router) group() *Group { return &r.root }

// Types returns an iterator over the registered message types, in no particular order.
func (r *Router) Types() iter.Seq[string] {
	r.routesMu.Lock()
	defer r.routesMu.Unlock()
	names := slices.Collect(maps.Keys(r.routes))
	return slices.Values(slices.DeleteFunc(names, protocol.IsReserved))
}

// Publish sends a message to all subscribers of topic, on all nodes. It returns an error if the name
// of the topic is invalid or the message cannot be encoded; no client receives the message then.
//
// On a topic without a History, Publish does not wait, and does not fail if nodes are
// unreachable; see Options.OnMessagesLost. If Options.Broker returns an error, because too many
// messages wait to be sent or Shutdown was called, so does Publish: the subscribers on this node have
// received the message, and those on other nodes have not.
//
// On a topic with a History, Publish waits until the message is stored, for at most Timeouts.Call or,
// with [Stored], for as long as a context permits. Subscribers on all nodes receive the stored
// publications of a topic once and in the order of their positions. If the error has the code
// errors.OutcomeUnknown, the message may have been stored, or is not as durable as History.Durability
// requires; subscribers receive it if it was stored. With any other error it was not, and no subscriber
// does, on this node neither. Publishing it again is safe with an [IdempotencyKey].
//
// All subscribers on one node receive the messages of a topic in the same order. Every
// subscriber receives the messages that one node publishes to one topic in the order of
// publication, so those of one goroutine in the order in which it publishes them. Nothing is
// promised about messages of different nodes or of different topics: subscribers on two nodes
// may receive the messages of two publishers in different orders.
func (r *Router) Publish(topic string, m Message, opts ...PublishOption) error {
	return r.publish(context.Background(), topic, m, publishOptions(opts))
}

// Conn returns the open connection of this node with the given ID, or nil.
func (r *Router) Conn(id string) *Conn { return r.conns.ByID(id) }

// Conns returns an iterator over the connections of this node that are open when the iteration
// begins.
func (r *Router) Conns() iter.Seq[*Conn] { return r.conns.All() }

// mustNotBeServing panics if the router is nil, or has begun to serve.
func (r *Router) mustNotBeServing(what string) {
	if r == nil {
		panic(fmt.Sprintf("router: %s called for a router that is nil; create one with New", what))
	}
	if r.serving.Load() {
		panic(fmt.Sprintf("router: %s called after the router began to serve; call it before the first request", what))
	}
}

// buildRoutes builds every route. It runs once, at the first request.
func (r *Router) buildRoutes() {
	r.serving.Store(true)
	r.unknownIngress = r.root.ingress
	longest := max(minReadBytes, r.opts.Limits.MaxMessageBytes)
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(r.routes))) { // $ is last: mistakes name types of the application
		r.routes[name].build()
		longest = max(longest, r.routes[name].maxBytes)
	}
	r.transport.MaxMessageBytes = longest
}
