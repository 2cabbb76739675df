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

// A Conn is one WebSocket connection. It is safe for concurrent use and may be
// kept; once it is closed, sending to it fails.
type Conn struct {
	router   *Router
	ws       *wsconn.Conn
	id       string
	identity Identity
	ip       netip.Addr

	ctx    context.Context // ends with the connection
	cancel context.CancelFunc

	messages    executor.SerialQueue[*incoming]
	inbound     executor.Memory[*incoming] // of messages
	resume      func()                     // calls serve on another goroutine
	deadlines   *deadlineQueue             // of its calls
	reportQueue atomic.Pointer[reports]
	inFlight    atomic.Int64 // RPCs whose handlers have not returned
	active      atomic.Int64 // what keeps the connection's place: its reader, its messages, its reports
	rejected    bool         // by OnOpen
	draining    atomic.Bool  // no new messages; closes once only the reader is active

	mu     sync.Mutex
	topics map[string]struct{} // nil once the connection has ended and its handlers, too
}

// ID returns the connection's name, which no other connection has.
func (c *Conn) ID() string { return c.id }

// Identity returns who the connection speaks for.
func (c *Conn) Identity() Identity { return c.identity }

// IP returns the client's address, unmapped and without zone. It is invalid if
// the address is unknown.
func (c *Conn) IP() netip.Addr { return c.ip }

// Context returns a context that ends with the connection.
func (c *Conn) Context() context.Context { return c.ctx }

// Subprotocol returns the subprotocol that was agreed on, or "".
func (c *Conn) Subprotocol() string { return c.ws.Subprotocol() }

// Send sends a message. It does not wait for the client; an error means that the
// message cannot be encoded, that Options.SlowConsumer drops it, or that the
// connection is closed. Messages arrive in the order in which they were sent.
func (c *Conn) Send(m Message) error {
	frame, err := encode(m)
	if err != nil {
		return err
	}
	return c.send(frame)
}

// Close sends what is still queued and then a close frame, without waiting for
// either. The reason is cut to 123 bytes. A code that must not travel is sent
// as 1011.
func (c *Conn) Close(code StatusCode, reason string) {
	if !code.sendable() {
		code = StatusInternalError
	}
	c.ws.Close(int(code), reason)
}

// Subscribe makes the connection receive what is published on topic, until it
// ends. What other nodes publish comes as soon as the broker knows of the
// subscription. Subscribing twice is the same as once. A topic's name has 1 to 256 bytes
// of UTF-8 without control characters; more than Limits.Topics of one connection are a
// [*LimitExceeded].
func (c *Conn) Subscribe(topic string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.subscribe(topic)
}

// subscribe must be called with the lock held.
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

// Unsubscribe undoes Subscribe and Enter.
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

// send queues a frame and wakes the writer. It takes over a reference to frame.
func (c *Conn) send(frame *wsconn.Frame) error {
	err := queueError(c.ws.Queue(frame))
	c.ws.Wake()
	return err
}

// queueWait queues the answer to a message of the client. It waits for room, so that a
// client that reads slowly is slowed down. The caller wakes the writer.
func (c *Conn) queueWait(frame *wsconn.Frame) error { return queueError(c.ws.QueueWait(frame)) }

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

// sendAll sends one encoding to many connections.
func sendAll(conns []*Conn, m Message) error {
	frame, err := encode(m)
	if err != nil {
		return err
	}
	for _, c := range conns {
		frame.Retain()
		_ = c.send(frame) // a connection that has gone is nobody's error
	}
	frame.Release()
	return nil
}

// maxWaitingJobs bounds the jobs that wait in one of a connection's serial queues. While a
// queue is full, the connection is not read.
const maxWaitingJobs = 64

// open starts a connection: OnOpen first, then its messages.
func (c *Conn) open() {
	var failed *inspectedError
	var closeErr *CloseError
	defer func() {
		if failed != nil {
			go c.rejectAfterOpen(failed, closeErr)
		} else {
			go c.serve() // the stack that OnOpen has grown is not kept
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

// end refuses a connection and waits until it has ended.
func (c *Conn) rejectAfterOpen(failed *inspectedError, closeErr *CloseError) {
	c.rejected = true
	defer c.release()
	defer c.unregister()
	defer c.discard()
	c.closeRejected(failed, closeErr)
}

// refuse closes a connection that OnOpen does not want.
func (c *Conn) closeRejected(failed *inspectedError, closeErr *CloseError) {
	if closeErr != nil {
		defer c.Close(closeErr.Code, closeErr.Reason)
		c.router.recordRejection(reasonOnOpen, errors.PermissionDenied)
		return
	}
	defer c.Close(StatusInternalError, "internal error")
	if failed.limited { // which OnOpen has no answer for
		failed = internalError(&failed.limit)
	}
	c.router.recordRejection(reasonOnOpen, failed.payload.Code)
	c.router.reportError(c, "", failed)
}

// serve reads messages until the connection ends or there are none to read. Then another
// goroutine goes on once there are.
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
		if c.ws.Park(c.resume) { // with nothing left to read, this goroutine handles the message itself
			c.messages.Loop()
			return
		}
		c.messages.Start()
	}
}

// discard reads until the connection ends.
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

// read reads a message. One without a Buffer means that only control frames have arrived.
func (c *Conn) read() (wsconn.Message, error) {
	msg, err := c.ws.Read(c.router.maxBytesOf)
	if msg.Buffer != nil || err != nil {
		c.router.observe(Event{Kind: EventRead, Bytes: msg.BytesRead})
	}
	return msg, err
}

// release takes the connection out of what finds connections.
func (c *Conn) unregister() {
	c.cancel()
	c.ws.Release()
	c.router.conns.remove(c)
}

// leaveTopics comes after the last handler, which may ask where its connection is.
func (c *Conn) leaveTopics() {
	c.mu.Lock()
	topics := c.topics
	c.topics = nil
	c.mu.Unlock()
	for topic := range topics {
		c.router.topics.remove(topic, c)
	}
}

func (c *Conn) callOnClose() {
	if c.rejected || c.router.opts.OnClose == nil {
		return
	}
	code, reason := c.ws.Status()
	c.router.hook("OnClose", func() { c.router.opts.OnClose(c, CloseError{StatusCode(code), reason}) })
}

// drain refuses further messages and closes the connection once the admitted
// ones have been handled.
func (c *Conn) drain() {
	c.draining.Store(true)
	if c.active.Load() == 1 {
		c.closeAfterDrain()
	}
}

func (c *Conn) closeAfterDrain() { c.Close(StatusServiceRestart, "server is restarting") }

// hold takes part in what keeps the connection's place, unless that has been given up: whoever
// sends may be too late.
func (c *Conn) acquire() bool {
	for {
		n := c.active.Load()
		if n == 0 || c.active.CompareAndSwap(n, n+1) {
			return n > 0
		}
	}
}

// done ends the part of a reader, a handler or a report. The last one gives up
// the connection's place.
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

// leave gives up the connection's place, even if OnClose, an observer or the Logger calls
// runtime.Goexit.
func (c *Conn) releaseSlot() {
	defer c.router.conns.releaseAddress(c.ip)
	defer c.router.conns.releaseUser(c.identity)
	defer c.messages.Pool.Release()
	code, _ := c.ws.Status()
	c.router.observe(Event{Kind: EventClosed, Status: StatusCode(code)})
	c.router.logClosed(c, StatusCode(code))
}
