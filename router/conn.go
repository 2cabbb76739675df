package router

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// A Conn is one WebSocket connection. It is safe for concurrent use and may be retained after
// it is closed; sending to it then fails.
type Conn struct {
	// Set before the connection is opened and read-only afterwards.
	router   *Router
	ws       *wsconn.Conn
	id       string
	identity Identity
	ip       netip.Addr

	ctx    context.Context // canceled when the connection is closed
	cancel context.CancelFunc

	messages    executor.SerialQueue[*incoming]
	inbound     executor.Memory[*incoming] // limits the bytes in messages
	resume      func()                     // calls serve on another goroutine
	deadlines   *deadlineQueue             // for the connection's calls
	reportQueue atomic.Pointer[reports]    // nil until the first report
	inFlight    atomic.Int64               // calls whose handlers have not returned
	active      atomic.Int64               // references: the reader, each received message, each report; at 0 the connection ends
	rejected    bool                       // by OnOpen
	draining    atomic.Bool                // rejects new messages, and closes when only the reader is active

	mu     sync.Mutex
	topics map[string]struct{} // nil after the last reference is released
}

// ID returns the connection's identifier. It is random, and unique across nodes.
func (c *Conn) ID() string { return c.id }

// Identity returns what Options.Authenticate returned, or the zero Identity.
func (c *Conn) Identity() Identity { return c.identity }

// IP returns the client's address, unmapped and without a zone. It is the zero netip.Addr if
// the address is unknown.
func (c *Conn) IP() netip.Addr { return c.ip }

// Context returns a context that is canceled when the connection is closed.
func (c *Conn) Context() context.Context { return c.ctx }

// Subprotocol returns the negotiated subprotocol, or "" if there is none.
func (c *Conn) Subprotocol() string { return c.ws.Subprotocol() }

// Send queues a message for the client and returns without waiting for the client to receive
// it. It returns an error if the message cannot be encoded, if Options.SlowConsumer drops it,
// or if the connection is closed. Messages arrive in the order in which they were sent.
func (c *Conn) Send(m Message) error {
	frame, err := encode(m)
	if err != nil {
		return err
	}
	return c.send(frame)
}

// Close closes the connection with a close frame, after the queued messages. It does not wait
// until they are sent. The reason is truncated to 123 bytes (RFC 6455, section 5.5). A code
// that must not be sent is replaced by 1011. Only the first call has an effect.
func (c *Conn) Close(code StatusCode, reason string) {
	if !code.sendable() {
		code = StatusInternalError
	}
	c.ws.Close(int(code), reason)
}

// Subscribe subscribes the connection to topic until it unsubscribes or is closed. Messages
// from other nodes arrive as soon as the broker has confirmed the subscription. Subscribing
// again has no effect.
//
// The name of a topic has 1 to 256 bytes of UTF-8 without control characters; for any other
// name, Subscribe returns an error with the code INVALID_ARGUMENT. Above Limits.Topics it
// returns a [*LimitExceeded], and after the connection has been closed, an error with the code
// UNAVAILABLE.
func (c *Conn) Subscribe(topic string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.subscribe(topic)
}

// subscribe must be called with c.mu held.
func (c *Conn) subscribe(topic string) error {
	if c.topics == nil {
		return errClosed
	}
	if _, ok := c.topics[topic]; ok {
		return nil
	}
	if err := checkTopic(topic); err != nil {
		return err
	}
	if n, limit := len(c.topics)+1, c.router.opts.Limits.Topics; n > limit {
		return &LimitExceeded{Kind: LimitTopics, Observed: int64(n), Limit: int64(limit), RetryAfter: errors.Never}
	}
	c.topics[topic] = struct{}{}
	c.router.topics.add(topic, c)
	return nil
}

// Subscribed reports whether the connection subscribes to topic.
func (c *Conn) Subscribed(topic string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.topics[topic]
	return ok
}

// Unsubscribe ends the subscription to topic and the connection's presence in it.
func (c *Conn) Unsubscribe(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.topics[topic]; ok {
		delete(c.topics, topic)
		c.router.topics.remove(topic, c)
	}
}

var errClosed = &errors.Error{Code: errors.Unavailable, Message: "connection is closed"}

var errDropped = &errors.Error{Code: errors.ResourceExhausted, Message: "client reads too slowly"}

// send queues a frame and wakes the writer. It takes ownership of one reference to frame.
func (c *Conn) send(frame *wsconn.Frame) error {
	err := queueError(c.ws.Queue(frame))
	c.ws.Wake()
	return err
}

// queueWait queues the answer to a message of the client, and waits while the queue is full:
// so a slow client is slowed down instead of disconnected. The caller wakes the writer.
func (c *Conn) queueWait(frame *wsconn.Frame) error { return queueError(c.ws.QueueWait(frame)) }

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

// sendAll encodes a message once and sends it to many connections. Connections that are closed
// are skipped.
func sendAll(conns []*Conn, m Message) error {
	frame, err := encode(m)
	if err != nil {
		return err
	}
	for _, c := range conns {
		frame.Retain()
		_ = c.send(frame)
	}
	frame.Release()
	return nil
}

// maxWaitingJobs bounds the waiting jobs in each serial queue of a connection. While a queue
// is full, the connection is not read.
const maxWaitingJobs = 64

// open calls OnOpen and then starts to read messages. Reading runs on another goroutine, so
// that the stack that OnOpen has grown is freed.
func (c *Conn) open() {
	var failed *inspectedError
	var closeErr *CloseError
	defer func() {
		if failed != nil {
			go c.rejectAfterOpen(failed, closeErr)
		} else {
			go c.serve()
		}
	}()
	if c.router.opts.OnOpen == nil {
		return
	}
	c.router.guard(&failed, "OnOpen", nil, func() error {
		err := c.router.opts.OnOpen(c.ctx, c)
		if !isNilPointer(err) {
			closeErr, _ = asType[*CloseError](err)
		}
		return err
	})
}

// rejectAfterOpen closes a connection that OnOpen has rejected, and reads until it is closed.
func (c *Conn) rejectAfterOpen(failed *inspectedError, closeErr *CloseError) {
	c.rejected = true
	defer c.release()
	defer c.unregister()
	defer c.discard()
	c.closeRejected(failed, closeErr)
}

// closeRejected closes a rejected connection with OnOpen's *CloseError, or else with 1011.
func (c *Conn) closeRejected(failed *inspectedError, closeErr *CloseError) {
	if closeErr != nil {
		defer c.Close(closeErr.Code, closeErr.Reason)
		c.router.recordRejection(reasonOnOpen, errors.PermissionDenied)
		return
	}
	defer c.Close(StatusInternalError, "internal error")
	if failed.limited { // OnOpen cannot respond with a limit
		failed = internalError(&failed.limit)
	}
	c.router.recordRejection(reasonOnOpen, failed.payload.Code)
	c.router.reportError(c, "", failed)
}

// serve reads messages until the connection is closed, or until there is nothing to read. In
// the latter case the transport calls c.resume when there is, and another goroutine continues.
func (c *Conn) serve() {
	for !c.ws.Park(c.resume) {
		c.ws.AwaitLowWater()
		msg, err := c.read()
		if err != nil {
			c.unregister()
			c.release()
			return
		}
		if msg.Buffer == nil {
			continue
		}
		c.receive(msg)
		if !c.messages.TryStart() {
			continue
		}
		if c.ws.Park(c.resume) { // nothing left to read: handle the message on this goroutine
			c.messages.Loop()
			return
		}
		c.messages.Start()
	}
}

// discard reads and drops messages until the connection is closed.
func (c *Conn) discard() {
	for {
		msg, err := c.read()
		if err != nil {
			return
		}
		if msg.Buffer != nil {
			msg.Release()
		}
	}
}

// read reads a message. A message without a Buffer means that only control frames have
// arrived.
func (c *Conn) read() (wsconn.Message, error) {
	msg, err := c.ws.Read(c.router.maxBytesOf)
	if msg.Buffer != nil || err != nil {
		c.router.observe(Event{Kind: EventRead, Bytes: msg.BytesRead})
	}
	return msg, err
}

// unregister follows the last read: it cancels the context, frees the transport's memory, and
// removes the connection from the registry.
func (c *Conn) unregister() {
	c.cancel()
	c.ws.Release()
	c.router.conns.remove(c)
}

// leaveTopics ends all subscriptions. It runs after the last handler, which may still ask for
// them.
func (c *Conn) leaveTopics() {
	c.mu.Lock()
	topics := c.topics
	c.topics = nil
	c.mu.Unlock()
	for topic := range topics {
		c.router.topics.remove(topic, c)
	}
}

// callOnClose calls Options.OnClose, unless OnOpen rejected the connection.
func (c *Conn) callOnClose() {
	if c.rejected || c.router.opts.OnClose == nil {
		return
	}
	code, reason := c.ws.Status()
	c.router.hook("OnClose", func() { c.router.opts.OnClose(c, CloseError{StatusCode(code), reason}) })
}

// drain rejects further messages and closes the connection when the admitted ones have been
// handled. receive increments active before it reads draining, and drain stores draining
// before it reads active, so one of them sees the other.
func (c *Conn) drain() {
	c.draining.Store(true)
	if c.active.Load() == 1 {
		c.closeAfterDrain()
	}
}

func (c *Conn) closeAfterDrain() { c.Close(StatusServiceRestart, "server is restarting") }

// acquire adds a reference, and reports false if the last one has been released: a sender may
// run later than that.
func (c *Conn) acquire() bool {
	for {
		n := c.active.Load()
		if n == 0 || c.active.CompareAndSwap(n, n+1) {
			return n > 0
		}
	}
}

// release drops the reference of a reader, a message or a report. The last one ends the
// connection.
func (c *Conn) release() {
	switch c.active.Add(-1) {
	case 1:
		if c.draining.Load() {
			c.closeAfterDrain()
		}
	case 0:
		defer c.releaseSlot()
		defer c.callOnClose()
		c.leaveTopics()
	}
}

// releaseSlot reports the end of the connection and releases its slots in the registry and its
// use of the pool, even if OnClose, an observer or the Logger calls runtime.Goexit.
func (c *Conn) releaseSlot() {
	defer c.router.conns.releaseAddress(c.ip)
	defer c.router.conns.releaseUser(c.identity)
	defer c.messages.Pool.Release()
	code, _ := c.ws.Status()
	c.router.observe(Event{Kind: EventClosed, Status: StatusCode(code)})
	c.router.logClosed(c, StatusCode(code))
}
