package router

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/calls"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// A Conn is one connection: a WebSocket, or the same over HTTP ([Router.HTTPFallback]). It is safe for concurrent use and may be retained after
// it is closed; sending to it then fails.
type Conn struct {
	sub topic.Subscriber // first: fan-out reads nothing else

	// Set before the connection is opened and read-only afterwards.
	router *Router
	id     string
	ip     netip.Addr

	identity atomic.Pointer[connIdentity] // nil for the zero Identity; changed only by changeUserLocked once the connection is open

	ctx    context.Context // canceled when the connection is closed
	cancel context.CancelCauseFunc

	messages    executor.SerialQueue[*incoming]
	calls       calls.Index[Context]    // without an answer
	reportQueue atomic.Pointer[reports] // nil until the first report
	active      atomic.Int32            // references: the reader, each received message, each report; at 0 the connection ends
	refused     bool                    // by OnOpen
	inline      bool                    // the reading goroutine may handle a message; belongs to it
	left        bool                    // it cannot subscribe any more: the last reference is released; guarded by mu
	draining    atomic.Uint32           // a drainReason: refuses new messages, and closes when only the reader is active
	revocations atomic.Uint32           // how often Revoke was called for the user: subscriptions compare it

	rate    registry.Bucket   // Limits.MessagesPerConn
	address *registry.Address // read-only; nil if the client's address is unknown
	extras  atomic.Pointer[connExtras]

	mu sync.Mutex // also held to change identity and the subscriptions of sub
}

// connExtras are what few connections need.
type connExtras struct {
	clientCalls atomic.Pointer[calls.Outgoing[*incoming]] // nil until the first Call
	values      atomic.Pointer[connValues]                // nil until the first Set
	recovery    atomic.Pointer[resumable]                 // nil until the client asks for positions or a session
	congested   atomic.Pointer[topic.Topic]               // to which the connection has published too much; see publisher.go
	events      atomic.Int32                              // concurrent events that are being handled, and one that waits for them
	eventEnded  atomic.Pointer[signal]                    // nil until an event waits
	guards      calls.Guards[Context]                     // of calls that send what Revoke may withhold
	traced      atomic.Bool                               // the client has asked for the trace contexts of calls
	transport   Transport                                 // "" for TransportWebSocket; read-only
}

// noExtras is that of all connections that have none. It is only read.
//
//nolint:gochecknoglobals // never changed
var noExtras connExtras

// extra returns what the connection has, to be read.
func (c *Conn) extra() *connExtras {
	if x := c.extras.Load(); x != nil {
		return x
	}
	return &noExtras
}

// ownExtra returns what the connection has, to be changed.
func (c *Conn) ownExtra() *connExtras {
	if c.extras.Load() == nil {
		c.extras.CompareAndSwap(nil, new(connExtras))
	}
	return c.extras.Load()
}

// ID returns the connection's identifier. It is unique across nodes, and cannot be guessed.
func (c *Conn) ID() string { return c.id }

// idOrEmpty returns the identifier, or "" for a nil connection.
func (c *Conn) idOrEmpty() string {
	if c == nil {
		return ""
	}
	return c.id
}

// IP returns the client's address, unmapped and without a zone. It is the zero netip.Addr if
// the address is unknown.
func (c *Conn) IP() netip.Addr { return c.ip }

// Context returns a context that is canceled when the connection is closed; its [context.Cause]
// then wraps a [*CloseError]. It has the values of Options.ConnContext.
func (c *Conn) Context() context.Context { return c.ctx }

// closeCause returns the cause with which the connection's context is canceled.
func (c *Conn) closeCause() error {
	code, reason := c.sub.WS.Status()
	return failure.Closed(&CloseError{StatusCode(code), reason})
}

// Subprotocol returns the negotiated subprotocol, which may be that of a [Codec], or "" if there is
// none.
func (c *Conn) Subprotocol() string { return c.sub.WS.Subprotocol() }

// Send queues a message for the client and returns without waiting for the client to receive
// it. It returns an error if the message cannot be encoded, if Options.SlowConsumer drops it,
// or if the connection is closed. Messages arrive in the order in which they were sent.
func (c *Conn) Send(m Message) error {
	if c.router.hints != nil {
		c.router.hints.Sent(m)
	}
	frame, err := envelope.EncodeEvent(c.codec(), m)
	if err != nil {
		return err
	}
	return c.send(frame)
}

// Close closes the connection with a close frame, after the queued messages. It does not wait
// until they are sent. The reason is truncated to 123 bytes (RFC 6455, section 5.5). A code
// that must not be sent is replaced by 1011. Only the first call has an effect.
func (c *Conn) Close(code StatusCode, reason string) {
	if !wsconn.ValidCloseCode(int(code)) {
		code = StatusInternalError
	}
	if endsSession(code) {
		c.discardSession()
	}
	c.sub.WS.Close(int(code), reason)
}

// Subscribe subscribes the connection to topic until it unsubscribes or is closed. Messages
// from other nodes arrive as soon as the broker has confirmed the subscription; on a topic with a History,
// Subscribe waits for that if this node has no subscriber yet, so that the connection receives everything that is
// published after it has returned. While the store cannot be read, it waits for at most Timeouts.Call, or as long as the
// context of [Context.Subscribe] permits, and then returns an error without having subscribed. If the connection has a
// session, Subscribe waits until its record is stored, or that has failed. Subscribing
// again has no effect, even if the client has subscribed by itself; see [Topic]. If
// TopicOptions.Presence is set, the connection also becomes present, with an empty info.
//
// The name of a topic has 1 to 256 bytes of UTF-8 without control characters; for any other
// name, Subscribe returns an error with the code INVALID_ARGUMENT. Above Limits.Topics or
// TopicOptions.MaxPerConn it returns a [*LimitExceeded], after the connection has been closed, an
// error with the code UNAVAILABLE, and while another connection resumes the session, one with ABORTED.
func (c *Conn) Subscribe(topic string, opts ...SubscribeOption) error {
	return c.subscribe(c.ctx, topic, subscribeOptions(opts))
}

func (c *Conn) subscribe(ctx context.Context, name string, opts SubscribeOption) error {
	if len(opts.info) > maxInfoBytes {
		return errors.Errorf(errors.InvalidArgument, "the info for topic %q has %d bytes; it must have at most %d", name, len(opts.info), maxInfoBytes)
	}
	if opts.history {
		if err := c.subscribeWithHistory(ctx, name, &opts); err != nil {
			return err
		}
	}
	if !opts.history || opts.present {
		t, added, err := c.addTopic(name, &opts)
		if err != nil {
			return err
		}
		if err = c.awaitStart(ctx, t); err != nil {
			if added {
				c.Unsubscribe(name)
			}
			return err
		}
	}
	if s := c.session(); s != nil && !s.AwaitSave(ctx) {
		return errSuperseded
	}
	return nil
}

// addTopic subscribes the connection, and reports whether it was not subscribed before.
func (c *Conn) addTopic(name string, opts *SubscribeOption) (t *topic.Topic, added bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	added = c.sub.TopicLocked(name) == nil
	if s := c.session(); s != nil {
		err = s.subscribe(name, session.Grant{Joined: opts.present, Info: opts.info})
		return c.sub.TopicLocked(name), added, err
	}
	c.unmarkOwn(name)
	t, err = c.addSubscriptionLocked(name, false)
	if err == nil && (opts.present || t.Pattern.Presence) {
		c.joinLocked(t, opts.info)
	}
	return t, added, err
}

// awaitStart waits until the connection receives everything that is published to a topic from then on, at most
// until ctx is done, and for Timeouts.Call if that has no deadline.
func (c *Conn) awaitStart(ctx context.Context, t *topic.Topic) error {
	if t.HasStarted() {
		return nil
	}
	ctx, cancel := c.router.callContext(ctx)
	defer cancel()
	return t.AwaitStart(ctx)
}

// Subscribed reports whether the connection subscribes to topic.
func (c *Conn) Subscribed(topic string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sub.TopicLocked(topic) != nil
}

// Unsubscribe ends the subscription to topic and the connection's presence in it.
func (c *Conn) Unsubscribe(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.session(); s != nil {
		s.announceEnd(topic)
	}
	c.unsubscribeLocked(topic)
}

// errClosed is returned for a connection that is closed or closing.
var errClosed = &errors.Error{Code: errors.Unavailable, Message: "connection is closed"}

// errDropped is returned for a message that a SlowConsumerPolicy has dropped.
var errDropped = &errors.Error{Code: errors.ResourceExhausted, Message: "client reads too slowly"}

// send queues a frame and wakes the writer. It takes ownership of one reference to frame.
func (c *Conn) send(frame *wsconn.Frame) error {
	err := queueError(c.sub.WS.Queue(frame))
	c.sub.WS.Wake()
	return err
}

// queueAnswer queues the answer to a message of the client, and waits while the queue is full:
// so a slow client is slowed down instead of disconnected. The answer is encoded when there is room,
// perhaps again if the room is then used by another one. The caller wakes the writer.
func (c *Conn) queueAnswer(encode func() *wsconn.Frame) {
	_ = c.sub.WS.QueueAnswer(func() (*wsconn.Frame, error) { return encode(), nil }, nil) // fails only if the connection is closed
}

// queueError returns the public error for an error of the transport's queue.
func queueError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, wsconn.ErrDropped):
		return errDropped
	default:
		return errClosed
	}
}
