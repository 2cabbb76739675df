package wsconn

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/errors"
)

// Options bound a connection. Every field must be set, but for Deflater.
type Options struct {
	MaxMessageBytes int64         // the hard cap: a longer message closes with 1009
	MessageTimeout  time.Duration // from a message's first frame to its last byte
	WriteTimeout    time.Duration // for one system call
	CloseTimeout    time.Duration // from our close frame to the peer's
	PingInterval    time.Duration // of silence, after which the peer is asked for a sign of life
	PongTimeout     time.Duration // for that sign

	BufferBytes int // of what one system call reads or writes; at most MaxBufferBytes

	QueueBytes    int // outgoing, not yet written
	QueueMessages int
	QueuePolicy   QueuePolicy

	Deflater *Deflater // nil: nothing is compressed
	Poller   *Poller   // of connections that are parked
}

// An Owner is told what happens to a connection. Its methods must not block.
type Owner interface {
	// Ended says that the socket is closed, perhaps more than once.
	Ended()

	// Overflowed says that the outgoing queue was full.
	Overflowed(Overflow)

	// QueueHigh says that the outgoing queue is more than half full. It is said
	// again only after the queue has been less than a quarter full.
	QueueHigh(messages, bytes int)

	// Wrote says what one system call has written.
	Wrote(Write)
}

// Close codes of RFC 6455, section 7.4.1, that this package sends or reports.
const (
	CodeProtocolError   = 1002
	CodeAbnormal        = 1006 // there was no close frame
	CodePolicyViolation = 1008
	CodeTooBig          = 1009
	CodeTryAgainLater   = 1013
)

// ErrClosed is returned for a connection that is closed or closing.
var ErrClosed = errors.New("connection is closed")

// A Conn is a server's end of a WebSocket connection. Read and Park are for one goroutine
// at a time; everything else is safe for concurrent use.
type Conn struct {
	lib  *websocket.Conn
	sock socket
	opts *Options

	deflates  bool // the client has agreed to it
	owner     Owner
	drainFunc func() // the method value, made once so that starting it allocates nothing

	closing  atomic.Bool // set under the lock
	draining atomic.Bool // a goroutine writes; changed under the lock

	mu       sync.Mutex
	queue    *batch // nil if it is empty
	frames   int    // in the queue or being written
	bytes    int    // of them
	high     bool   // the owner knows that the queue is more than half full
	code     int    // of the close frame that came or went first
	reason   string
	timer    *time.Timer   // the only one: for a sign of life, or for the peer's close frame
	pingedAt time.Duration // since start; 0 if the timer does not wait for a pong
	closeBy  time.Duration // since start; 0 until Close

	polled bool         // it can be parked
	slot   int32        // the poller's
	turn   atomic.Int32 // to read: turnTaken and so on
	again  func()       // what Park was called with, while the turn is free

	reading  atomic.Bool  // Read is waiting for the peer
	lastSeen atomic.Int64 // when the peer last showed life, nanoseconds since start
	start    time.Time
}

// Accept upgrades a request and selects a subprotocol, unless that is "". If it
// fails, it has answered the request. The origin is the caller's to check.
func Accept(w http.ResponseWriter, r *http.Request, subprotocol string, opts *Options, owner Owner) (*Conn, error) {
	c := &Conn{opts: opts, owner: owner, start: time.Now()}
	c.drainFunc = c.drain
	c.sock.owner = owner
	c.sock.timeout, c.sock.writeTimeout = opts.MessageTimeout, opts.WriteTimeout
	accept := &websocket.AcceptOptions{
		InsecureSkipVerify: true,
		OnPingReceived:     c.pingReceived,
		OnPongReceived:     c.pongReceived,
	}
	if subprotocol != "" {
		accept.Subprotocols = []string{subprotocol}
	}
	if opts.Deflater != nil {
		if answer := deflateAnswer(r.Header); answer != "" {
			w.Header().Set("Sec-WebSocket-Extensions", answer)
			c.deflates, c.sock.frames.inflates = true, true
		}
	}
	lib, err := websocket.Accept(&hijacker{w, &c.sock, classFor(opts.BufferBytes)}, r, accept)
	if err != nil {
		return nil, err
	}
	lib.SetReadLimit(-1) // Read counts by itself
	// Early bytes are in c.sock: what the library has put in between for them is not needed.
	c.sock.buffered.Reset(&c.sock)
	c.lib = lib
	if c.sock.wire != nil {
		slot, err := opts.Poller.add(c, c.sock.wire.conn)
		c.slot, c.polled = slot, err == nil
	}
	c.mu.Lock()
	c.timer = time.AfterFunc(opts.PingInterval, c.tick)
	c.mu.Unlock()
	return c, nil
}

// Subprotocol returns the selected subprotocol, or "".
func (c *Conn) Subprotocol() string { return c.lib.Subprotocol() }

// Close sends what is queued and then a close frame, without waiting for either.
// Read ends when the peer has answered, at the latest after CloseTimeout. The
// reason is cut to what a close frame can hold. The first Close decides; later
// ones do nothing.
func (c *Conn) Close(code int, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeLocked(code, reason)
}

// closeLocked must be called with the lock held.
func (c *Conn) closeLocked(code int, reason string) {
	if c.closing.Load() {
		return
	}
	c.closing.Store(true)
	c.code, c.reason = code, reason
	c.sendControl(closeFrame(code, reason))
	c.closeBy = time.Since(c.start) + c.opts.CloseTimeout
	c.timer.Reset(c.opts.CloseTimeout)
}

// sendControl must be called with the lock held.
func (c *Conn) sendControl(f *Frame) {
	c.enqueue(f)
	if c.draining.CompareAndSwap(false, true) {
		go c.drainFunc()
	}
}

// Abort closes the socket at once.
func (c *Conn) Abort() {
	c.mu.Lock()
	c.closing.Store(true)
	c.mu.Unlock()
	c.owner.Ended()
	c.sock.abort()
	c.readable(true)
}

// Release frees what the connection holds. It must follow the last Read.
func (c *Conn) Release() {
	c.mu.Lock()
	c.closing.Store(true)
	c.timer.Stop()
	c.mu.Unlock()
	if c.polled {
		c.polled = false
		c.opts.Poller.remove(c.slot)
	}
	_ = c.sock.Close()
	_ = c.lib.CloseNow()
	c.sock.forget()
}

// Status returns the code and the reason of the close frame that came or went
// first, or CodeAbnormal. It is final once Read has returned an error.
func (c *Conn) Status() (code int, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.code == 0 {
		return CodeAbnormal, ""
	}
	return c.code, c.reason
}
