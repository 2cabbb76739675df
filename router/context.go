package router

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/internal/calls"
)

// A Context is a received message with its connection, and the message's [context.Context]. It
// is canceled when the connection is closed and, for a call, also when it has been answered,
// at the latest at its deadline. A message that arrives before the connection is closed is
// handled nevertheless, unless it is a call. A Context may be retained. Its methods are safe
// for concurrent use, except SetValue and SetReply.
type Context struct {
	conn     *Conn
	route    *Route
	message  any     // a pointer to the decoded value
	reply    Message // depends on call.Reply
	size     int64
	identity *connIdentity       // that ingress functions received
	values   *keyValue           // a linked list, latest first
	call     calls.Call[Context] // of an event, it has only the correlation ID and the time of receipt
}

// A keyValue is a pair that SetValue has stored.
type keyValue struct {
	key, value any
	before     *keyValue
}

var _ context.Context = (*Context)(nil)

// Deadline returns the deadline of a call; ok is false for other messages.
func (c *Context) Deadline() (deadline time.Time, ok bool) {
	if ctx := c.derived(); ctx != nil {
		return ctx.Deadline()
	}
	return c.call.Deadline()
}

// Done returns a channel that is closed when the context is canceled.
func (c *Context) Done() <-chan struct{} { return c.context().Done() }

// Err returns nil until Done is closed, and then [context.Canceled] or
// [context.DeadlineExceeded].
func (c *Context) Err() error {
	if c.route.rpc && c.derived() == nil {
		return c.call.Err(&c.conn.ctx, endedByDeadline)
	}
	return c.context().Err()
}

// Value returns the value that SetValue last stored for key, or else that of the context of
// [Context.WithContext], Options.Tracer or Options.ConnContext, or nil.
func (c *Context) Value(key any) any {
	for v := c.values; v != nil; v = v.before {
		if v.key == key {
			return v.value
		}
	}
	return c.context().Value(key)
}

// WithContext returns the message with another context, which should be derived from c: a middleware
// passes it to next, so that its span, its deadline or its values reach the handler, what the handler
// publishes, and the calls of limiters and stores. Everything else is shared: the reply, the progress,
// and the deadline of the call, at which the client is answered whatever ctx says. It panics if ctx is
// nil.
func (c *Context) WithContext(ctx context.Context) *Context {
	if ctx == nil {
		panic("router: WithContext of a nil context; it must be derived from the Context")
	}
	derived := &Context{conn: c.conn, route: c.route, message: c.message, size: c.size, identity: c.identity}
	derived.values = &keyValue{key: derivedKey{}, value: ctx}
	derived.call.Of = c.root()
	return derived
}

// derivedKey is the key of the context that WithContext has set.
type derivedKey struct{}

// derived returns the context that WithContext has set, or nil.
func (c *Context) derived() context.Context {
	for v := c.values; v != nil; v = v.before {
		if v.key == (derivedKey{}) {
			return v.value.(context.Context)
		}
	}
	return nil
}

// root returns the Context that has the state of the message.
func (c *Context) root() *Context {
	if c.call.Of != nil {
		return c.call.Of
	}
	return c
}

// SetValue stores a value for later handlers: a span or a transaction, for example. Like the
// key of [context.WithValue], key should have an unexported type of the caller's package.
// Middleware must call it before next.
func (c *Context) SetValue(key, value any) { c.values = &keyValue{key, value, c.values} }

// context returns the context that Context delegates to.
func (c *Context) context() context.Context {
	if ctx := c.derived(); ctx != nil {
		return ctx
	}
	if c.route.rpc {
		return c.call.Context(&c.conn.ctx, endedByDeadline)
	}
	return c.base()
}

// base returns the context from which that of the message is derived: that of the connection, with the
// span of the message if it has one.
func (c *Context) base() context.Context {
	if ctx := c.call.Parent(); ctx != nil {
		return ctx
	}
	return &c.conn.ctx
}

// Conn returns the connection that received the message.
func (c *Context) Conn() *Conn { return c.conn }

// Identity returns the current identity of the connection, which [Conn.SetIdentity] may have
// changed since the message was received; see [Context.Ingress].
func (c *Context) Identity() Identity { return c.conn.Identity() }

// Type returns the message's type.
func (c *Context) Type() string { return c.route.name }

// Message returns the decoded message, by value. It is meant for middleware.
func (c *Context) Message() Message { return c.route.value(c.message) }

// Reply returns the reply of a call, or nil before the handler has set it. It is meant for
// middleware, after next has returned.
func (c *Context) Reply() Message {
	switch root := c.root(); root.call.Reply {
	case replyInline:
		return c.route.returned(root.reply)
	case replySet:
		return root.reply
	default:
		return nil
	}
}

// SetReply sets or replaces the reply of a call. It is meant for middleware, which must then
// return nil. For a message that is not a call, it has no effect.
func (c *Context) SetReply(m Message) {
	root := c.root()
	root.reply, root.call.Reply = m, replySet
}

// CorrelationID returns the identifier by which the client matches the answer with the
// message, or "".
func (c *Context) CorrelationID() string { return c.root().call.ID }

// Ingress returns what the ingress functions received for the message, so that the key and the
// cost of a limit can be computed again, to refund them, for example. Its Identity is the one
// that the message was charged with, even if the connection has another one since.
func (c *Context) Ingress() IngressContext {
	return c.conn.ingressContext(c.route.name, c.identity, c.size, c.ReceivedAt())
}

// Ingress describes the connection to functions that take an [IngressContext], such as those of limits. Type and Size are
// zero, and ReceivedAt is the time of the call.
func (c *Conn) Ingress() IngressContext {
	return c.ingressContext("", c.identity.Load(), 0, time.Now())
}

// ReceivedAt returns when the last byte of the message was read.
func (c *Context) ReceivedAt() time.Time { return c.root().call.ReceivedAt }

// Send sends a message to the client; see [Conn.Send].
func (c *Context) Send(m Message) error { return c.conn.Send(m) }

// SendWait sends a message to the client and waits while its send queue is full; see
// [Conn.SendWait]. For a call, it waits at most until the deadline.
func (c *Context) SendWait(m Message) error { return c.conn.SendWait(c, m) }

// Subscribe subscribes the connection to topic; see [Conn.Subscribe]. With [Since] or [CurrentState] it
// waits for the store, until the context is done.
func (c *Context) Subscribe(topic string, opts ...SubscribeOption) error {
	return c.conn.subscribe(c, topic, subscribeOptions(opts))
}

// Unsubscribe ends the subscription to topic and the presence in it.
func (c *Context) Unsubscribe(topic string) { c.conn.Unsubscribe(topic) }

// Publish sends a message to all subscribers of topic, including this connection if it is
// subscribed. On a topic with a History, it waits until the message is stored; see
// [Router.Publish], also for the errors. The wait also ends with the message. While the send queues
// of most subscribers on this node are more than half full, the later messages of this connection
// wait for up to 100 ms each, so a client that publishes more than the others read slows down
// itself.
func (c *Context) Publish(topic string, m Message, opts ...PublishOption) error {
	defer c.conn.slowPublisher(topic)
	return c.conn.router.publish(c, topic, m, publishOptions(opts))
}
