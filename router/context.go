package router

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A Context is what a handler knows of its message. It is the message's
// context.Context: it is cancelled when the connection ends and, for an RPC,
// when its time is up or it has been answered. A message that came before the
// connection ended is handled all the same, unless it is an RPC. A Context may
// be kept.
type Context struct {
	conn          *Conn
	route         *Route
	message       any // a pointer to it
	reply         Message
	correlationID string
	receivedAt    time.Time
	size          int64
	values        *keyValue // the last that was set
	call          call      // of an RPC
}

type keyValue struct {
	key, value any
	before     *keyValue
}

var _ context.Context = (*Context)(nil)

// Deadline returns when an RPC's time is up.
func (c *Context) Deadline() (time.Time, bool) { return c.context().Deadline() }

// Done returns a channel that is closed when the message's work is not wanted any
// more.
func (c *Context) Done() <-chan struct{} { return c.context().Done() }

// Err returns why the message's work is not wanted any more, or nil.
func (c *Context) Err() error { return c.context().Err() }

// Value returns what SetValue was last called with for key, or nil.
func (c *Context) Value(key any) any {
	for v := c.values; v != nil; v = v.before {
		if v.key == key {
			return v.value
		}
	}
	return c.context().Value(key)
}

// SetValue is how a middleware hands something on: a span, a transaction. Like the key of
// [context.WithValue], key should be of a type of your own. It must be called before next.
func (c *Context) SetValue(key, value any) { c.values = &keyValue{key, value, c.values} }

func (c *Context) context() context.Context {
	if c.route.rpc {
		return c.call.context(c.conn.ctx, c.receivedAt.Add(c.conn.deadlines.timeout))
	}
	return c.conn.ctx
}

// Conn returns the connection that the message came from.
func (c *Context) Conn() *Conn { return c.conn }

// Identity returns who the connection speaks for.
func (c *Context) Identity() Identity { return c.conn.identity }

// Type returns the message's name.
func (c *Context) Type() string { return c.route.name }

// Message returns the decoded message, for middleware.
func (c *Context) Message() Message { return c.route.value(c.message) }

// Reply returns what an RPC will be answered with, or nil: for middleware, when next has
// returned.
func (c *Context) Reply() Message { return c.reply }

// SetReply answers an RPC in the handler's place, or otherwise than the handler did, if the
// middleware that calls it returns nil. Of a message without a reply, nothing is sent.
func (c *Context) SetReply(m Message) { c.reply = m }

// CorrelationID returns what the client will recognise the answer by, or "".
func (c *Context) CorrelationID() string { return c.correlationID }

// Ingress returns what the ingress functions saw of the message: a limit's key and
// cost can be computed from it again, to refund them, say.
func (c *Context) Ingress() IngressContext {
	return c.conn.ingressContext(c.route.name, c.size, c.receivedAt)
}

// ReceivedAt returns when the message's last byte was read.
func (c *Context) ReceivedAt() time.Time { return c.receivedAt }

// Send sends a message to the connection, as [Conn.Send] does.
func (c *Context) Send(m Message) error { return c.conn.Send(m) }

// Subscribe makes the connection receive what is published on topic.
func (c *Context) Subscribe(topic string) error { return c.conn.Subscribe(topic) }

// Join subscribes the connection to topic and lists it among the topic's members.
func (c *Context) Join(topic, info string) error { return c.conn.Join(topic, info) }

// Unsubscribe undoes Subscribe and Enter.
func (c *Context) Unsubscribe(topic string) { c.conn.Unsubscribe(topic) }

// Publish sends a message to all connections that subscribe to topic, this one
// included if it does.
func (c *Context) Publish(topic string, m Message) error {
	return c.conn.router.topics.publish(topic, nil, m, true)
}

// PublishExceptSelf is Publish without this connection.
func (c *Context) PublishExceptSelf(topic string, m Message) error {
	return c.conn.router.topics.publish(topic, c.conn, m, true)
}

// Progress tells the caller of an RPC how far it is. After the answer it does
// nothing.
func (c *Context) Progress(update any) error {
	if !c.route.rpc {
		return errors.Errorf(errors.FailedPrecondition, "%s is not an RPC", c.route.name)
	}
	frame, err := encodeProgress(c.correlationID, update)
	if err != nil {
		return err
	}
	c.call.mu.Lock()
	defer c.call.mu.Unlock()
	if c.call.answered {
		frame.Release()
		return nil
	}
	return c.conn.send(frame)
}
