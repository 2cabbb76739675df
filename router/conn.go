package router

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/internal/calls"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/member"
	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// A Conn is one connection: a WebSocket, or the same over HTTP ([Router.HTTPFallback]). It is safe for concurrent use and may be retained after
// it is closed; sending to it then fails.
type Conn struct {
	member member.Member // first: fan-out reads nothing else

	// Set before the connection is opened and read-only afterwards.
	router *Router
	ip     netip.Addr

	identity atomic.Pointer[connIdentity] // nil for the zero Identity; changed only by changeUserLocked once the connection is open

	ctx calls.ConnContext // canceled when the connection is closed

	messages executor.SerialQueue[*incoming]
	calls    calls.Index[Context] // without an answer
	active   atomic.Int32         // references: the reader, each received message, each report; at 0 the connection ends
	draining atomic.Uint32        // a drainReason: refuses new messages, and closes when only the reader is active

	rate    registry.Bucket   // Limits.MessagesPerConn
	address *registry.Address // read-only; nil if the client's address is unknown
	extras  atomic.Pointer[connExtras]
}

// connExtras are what few connections need.
type connExtras struct {
	clientCalls atomic.Pointer[calls.Outgoing[wsconn.Message]] // nil until the first Call
	values      atomic.Pointer[connValues]                     // nil until the first Set
	reportQueue atomic.Pointer[reports]                        // nil until the first report
	refused     bool                                           // by OnOpen; belongs to the goroutine that ends the connection
	congested   atomic.Pointer[topic.Topic]                    // to which the connection has published too much; see publisher.go
	events      atomic.Int32                                   // concurrent events that are being handled, and one that waits for them
	eventEnded  atomic.Pointer[signal]                         // nil until an event waits
	guards      calls.Guards[Context]                          // of calls that send what Revoke may withhold
	traced      atomic.Bool                                    // the client has asked for the trace contexts of calls
	transport   Transport                                      // "" for TransportWebSocket; read-only
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
func (c *Conn) ID() string { return c.member.ID }

// idOrEmpty returns the identifier, or "" for a nil connection.
func (c *Conn) idOrEmpty() string {
	if c == nil {
		return ""
	}
	return c.member.ID
}

// IP returns the client's address, unmapped and without a zone. It is the zero netip.Addr if
// the address is unknown.
func (c *Conn) IP() netip.Addr { return c.ip }

// Context returns a context that is canceled when the connection is closed; its [context.Cause]
// then wraps a [*CloseError]. It has the values of Options.ConnContext.
func (c *Conn) Context() context.Context { return &c.ctx }

// closeCause returns the cause with which the connection's context is canceled.
func (c *Conn) closeCause() error {
	code, reason := c.member.WS.Status()
	return failure.Closed(&CloseError{StatusCode(code), reason})
}

// RTT returns how long the client took to answer a ping, the latest time that this was measured, or 0 before. A client is pinged
// when it has sent nothing for Timeouts.Ping. An answer counts only in the first data after the ping, because later data may have
// waited for a handler; one that nobody asked for looks alike. Over the HTTP fallback, nothing is measured.
func (c *Conn) RTT() time.Duration {
	if c.Transport() != TransportWebSocket {
		return 0
	}
	return c.member.WS.RTT()
}

// Subprotocol returns the negotiated subprotocol, which may be that of a [Codec], or "" if there is
// none.
func (c *Conn) Subprotocol() string { return c.member.WS.Subprotocol() }

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
	if member.EndsSession(int(code)) {
		c.member.DiscardSession()
	}
	c.member.WS.Close(int(code), reason)
}

// Subscribe subscribes the connection to topic until it unsubscribes or is closed. Messages
// from other nodes arrive as soon as the broker has confirmed the subscription; on a topic with a History,
// Subscribe waits for that if this node has no subscriber yet, so that the connection receives everything that is
// published after it has returned. While the store cannot be read, it waits for at most Timeouts.Call, or as long as the
// context of [Context.Subscribe] permits, and then returns an error without having subscribed. If the connection has a
// session, Subscribe waits until its record is stored, or that has failed. Subscribing
// again has no effect, even if the client has subscribed by itself; see [Topic]. If
// TopicOptions.Presence is set, the connection also becomes present, with an empty info, unless [Hidden] is given.
//
// The name of a topic has 1 to 256 bytes of UTF-8 without control characters; for any other
// name, Subscribe returns an error with the code INVALID_ARGUMENT. Above Limits.Topics or
// TopicOptions.MaxPerConn it returns a [*LimitExceeded], after the connection has been closed, an
// error with the code UNAVAILABLE, and while another connection resumes the session, one with ABORTED.
func (c *Conn) Subscribe(topic string, opts ...SubscribeOption) error {
	return c.subscribe(&c.ctx, topic, subscribeOptions(opts))
}

func (c *Conn) subscribe(ctx context.Context, name string, opts SubscribeOption) error {
	result, err := c.router.members.Subscribe(ctx, (*memberConn)(c), name, &opts.request)
	if err == nil && opts.recovery != nil {
		*opts.recovery = Recovery{result.Position, result.Recovered, result.Ended, result.State, result.More}
	}
	return err
}

// Subscribed reports whether the connection subscribes to topic.
func (c *Conn) Subscribed(topic string) bool { return c.member.Subscribed(topic) }

// Unsubscribe ends the subscription to topic and the connection's presence in it.
func (c *Conn) Unsubscribe(topic string) { c.router.members.Unsubscribe(&c.member, topic) }

// send queues a frame and wakes the writer. It takes ownership of one reference to frame.
func (c *Conn) send(frame *wsconn.Frame) error {
	err := c.member.WS.Queue(frame)
	c.member.WS.Wake()
	return err
}

// queueAnswer queues the answer to a message of the client, and waits while the queue is full:
// so a slow client is slowed down instead of disconnected. The answer is encoded when there is room,
// perhaps again if the room is then used by another one. The caller wakes the writer.
func (c *Conn) queueAnswer(encode func() *wsconn.Frame) {
	_ = c.member.WS.QueueAnswer(func() (*wsconn.Frame, error) { return encode(), nil }, nil) // fails only if the connection is closed
}
