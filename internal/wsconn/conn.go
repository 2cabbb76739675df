package wsconn

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/deflate"
	"github.com/penstock-go/penstock/internal/executor"
)

// Options bound a connection. Every field must be set, except Budget, Deflater and Reason.
type Options struct {
	MaxMessageBytes int64         // a longer message closes the connection with 1009
	MessageTimeout  time.Duration // from a message's first byte to its last
	WriteTimeout    time.Duration // for one system call
	SendTimeout     time.Duration // for one call of QueueTurn
	CloseTimeout    time.Duration // from our close frame to the peer's
	PingInterval    time.Duration // of silence, after which the peer is pinged
	PongTimeout     time.Duration // from a ping to the peer's next data

	// Budget bounds the memory of messages longer than BufferBytes that are arriving, of all
	// connections that share it; nil if it is not bounded.
	Budget *executor.ByteBudget

	BufferBytes int // of one system call; at most netpoll.MaxBufferBytes

	QueueBytes    int // that wait to be written, without the batch that is being written
	QueueMessages int
	SlowConsumer  SlowConsumerPolicy // of frames that have none of their own

	// Reason returns the reason of a close frame that this package sends without a call of Close, from
	// its code and a text. It must not block. If nil, the reason is the text.
	Reason func(code int, text string) string

	// OnWrite is called after each system call that has written something. It must not block or panic. It may be nil.
	OnWrite func(Write)

	Deflater *Deflater // nil: nothing is compressed
	Engine   *Engine
}

// A Handler is notified of what happens to a connection. Its methods must not panic and, except
// Serve, must not block.
type Handler interface {
	// Serve is called when a parked or paused connection must be read. It reads until Park returns
	// Parked, Paused or, through Lend and Reclaim, until another goroutine reads, and returns true
	// only for Paused. It may block, and may end the goroutine.
	Serve() (paused bool)

	// OnClosed is called when the socket is closed, perhaps more than once.
	OnClosed()

	// OnOverflow is called when a frame did not fit into the send queue, or has replaced
	// another one.
	OnOverflow(Overflow)

	// OnBackpressure is called when the send queue becomes more than half full,
	// and again only after it has been less than a quarter full.
	OnBackpressure(messages, bytes int)
}

// Close codes of RFC 6455, section 7.4.1, that this package sends or reports.
const (
	codeNormal          = 1000
	codeNoStatus        = 1005 // the peer's close frame had no code
	CodeAbnormal        = 1006 // there was no close frame
	codeProtocolError   = 1002
	codeInvalidPayload  = 1007
	codePolicyViolation = 1008
	codeTooBig          = 1009
	codeTryAgainLater   = 1013
)

// ErrClosed is returned for a connection that is closed or closing.
var ErrClosed = &errors.Error{Code: errors.Unavailable, Message: "connection is closed"}

// A Conn is the server's end of a WebSocket connection. Read, Park, Lend and Release are for the
// goroutine that has the right to read; everything else is safe for concurrent use.
//
// Lock order: Conn.mu comes before the locks of the Engine. Handler is called without Conn.mu.
type Conn struct {
	// What a publication to many connections reads and writes comes first, in two cache lines.
	opts         *Options
	mu           sync.Mutex
	first        *Frame       // the only frame that waits; nil if there is none, or a queue
	queue        *sendQueue   // frames that wait; nil if there are none, or only first
	inFlight     *sendQueue   // frames that are being written; nil if there are none
	waits        *waits       // nil until a goroutine waits
	closing      atomic.Bool  // set under the lock
	writer       atomic.Int32 // see the constants; it leaves writerIdle, and returns to it, under the lock
	served       atomic.Bool  // Serve runs in an event loop, so that what is queued is written when Serve returns or blocks
	high         atomic.Bool  // stored only with the lock held; more than half full, and not less than a quarter full since then
	deflates     bool         // the client has agreed to compression; read-only
	polled       bool         // an event loop has the socket or watches it, so that the connection can be parked; read-only
	closeWritten bool         // the close frame has been written
	halfClose    bool         // close the writing direction behind the close frame
	writeFailed  bool         // a frame may have been written in part: nothing may follow; belongs to the writing goroutine
	lowered      uint16       // how often high has become false; it may overflow
	peakMessages int32        // highest number that has waited in the queue
	peakBytes    int32        // likewise
	sock         socket       // that begins with what writing needs

	handler     Handler
	stalled     uint16        // in which second waitsForPeerLocked has found that the peer does not read; it may overflow
	aborted     bool          // by Abort
	released    bool          // by Release
	pingedAfter uint32        // chunks that had arrived before the latest ping
	closed      *closeInfo    // nil until a close frame is queued or has arrived
	pingedAt    time.Duration // since Engine.start; 0 if no pong is awaited
	timerPlace  int32         // in Engine.timers, which guards it
	rttMicros   atomic.Uint32 // from the latest ping to its pong; 0 if there was none
	subprotocol string
	windows     *deflate.Windows // nil if none is kept; read-only

	frames     frameReader  // belongs to the goroutine with the right to read
	readState  atomic.Int32 // see the constants
	writeState atomic.Int32
	waiting    atomic.Bool   // Read waits for the peer
	chunks     atomic.Uint32 // that have arrived; it may overflow
	lastSeen   atomic.Int64  // when the peer last sent data, in nanoseconds since Engine.start
}

// A closeInfo describes the close frame that was sent or received first.
type closeInfo struct {
	code   int
	reason string
	by     time.Duration // when the peer must have answered, since Engine.start
}

// sinceStart returns a time as the fields of Conn store it: in 8 bytes.
func (c *Conn) sinceStart(t time.Time) time.Duration { return t.Sub(c.opts.Engine.start) }

// Accept upgrades a request and selects a subprotocol, unless that is "". The caller
// has checked the origin. The error is [ErrAnswered] if the request was not a valid
// handshake, and has been answered. Any other error is an [*errors.Error] that the
// caller has to answer with; nothing has been written then.
func Accept(w http.ResponseWriter, r *http.Request, subprotocol string, opts *Options, handler Handler) (*Conn, error) {
	c := &Conn{opts: opts, handler: handler, subprotocol: subprotocol}
	c.seen(time.Now())
	if err := c.upgrade(w, r); err != nil {
		c.releaseWindows()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.polled = opts.Engine.poller.Attach(c.sock.conn, c, &c.sock.raw) == nil
	if c.polled {
		c.sock.conn = nil
	} else {
		c.polled = c.watchTLS()
	}
	opts.Engine.timers.Set((*connTimer)(c), opts.PingInterval)
	return c, nil
}

// Subprotocol returns the selected subprotocol, or "".
func (c *Conn) Subprotocol() string { return c.subprotocol }

// Close sends what is queued and then a close frame, without waiting for either. Read
// ends when the peer has answered, at the latest after CloseTimeout. The reason is
// shortened to the length that a close frame allows, and bytes of it that are not UTF-8
// are replaced. Only the first Close has an effect.
func (c *Conn) Close(code int, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeLocked(code, reason)
}

// CloseSlow closes the connection of a client that reads too slowly, as a full queue does.
func (c *Conn) CloseSlow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closeSlowLocked()
}

func (c *Conn) closeSlowLocked() {
	c.closeLocked(codeTryAgainLater, c.opts.reason(codeTryAgainLater, "client reads too slowly"))
}

// reason returns the reason of a close frame that no caller of Close has given.
func (o *Options) reason(code int, text string) string {
	if o.Reason == nil {
		return text
	}
	return o.Reason(code, text)
}

func (c *Conn) closeLocked(code int, reason string) {
	if c.closing.Load() {
		return
	}
	c.beginClosingLocked(closeFrame(code, reason), code, reason)
}

// beginClosingLocked queues a close frame, after which no frame may follow, and starts
// CloseTimeout.
func (c *Conn) beginClosingLocked(f *Frame, code int, reason string) {
	c.closing.Store(true)
	c.closed = &closeInfo{code, reason, c.sinceStart(time.Now()) + c.opts.CloseTimeout}
	c.enqueueControlLocked(f)
	c.setTimerLocked(c.opts.CloseTimeout)
	c.signalProgressLocked()
}

// Closing reports whether the connection is closed or closing, so that no frame can be queued and
// Read drops messages.
func (c *Conn) Closing() bool { return c.closing.Load() }

// Abort closes the socket at once.
func (c *Conn) Abort() {
	c.mu.Lock()
	c.closing.Store(true)
	c.aborted = true
	c.signalProgressLocked()
	c.mu.Unlock()
	c.handler.OnClosed()
	c.sock.abort()
	c.interrupt()
}

// Release closes the socket and returns the buffers. It must follow the last Read.
func (c *Conn) Release() {
	c.mu.Lock()
	c.closing.Store(true)
	released := c.released
	c.released = true
	c.opts.Engine.timers.Stop((*connTimer)(c))
	c.signalProgressLocked()
	c.mu.Unlock()
	if !released {
		c.releaseWindows()
		c.sock.close()
		c.sock.forget()
	}
}

// Status returns the code and the reason of the close frame that was sent or received
// first, or CodeAbnormal. It is final once Read has returned an error.
func (c *Conn) Status() (code int, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed == nil {
		return CodeAbnormal, ""
	}
	return c.closed.code, c.closed.reason
}
