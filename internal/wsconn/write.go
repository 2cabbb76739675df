package wsconn

import (
	"net"
	"time"

	"github.com/penstock-go/penstock/internal/netpoll"
)

// States of Conn.writer, which say which goroutine writes.
const (
	writerIdle    = iota // none
	writerQueued         // a flusher will, unless another goroutine begins first
	writerRunning        // one runs writeLoop
	writerBlocked        // one waits until the socket, which is in an event loop, has room
)

// Queue adds f to the frames that [Conn.Wake] or [Conn.Flush] writes. It takes over a
// reference and returns at once. Frames are written in the order in which they were
// queued. If the queue is full, Options.SlowConsumer decides.
func (c *Conn) Queue(f *Frame) error {
	c.mu.Lock()
	return c.queueAndUnlock(f)
}

// queueAndUnlock must be called with the lock held. It notifies the handler after it has
// released the lock.
func (c *Conn) queueAndUnlock(f *Frame) error {
	var over Overflow
	err := c.enqueueByPolicyLocked(f, &over)
	high := err == nil && c.becomesHighLocked()
	var messages, bytes int
	if high {
		messages, bytes = c.queuedLocked()
	}
	if over.Limit > 0 || over.Conflated > 0 {
		over.Policy = c.opts.SlowConsumer
		if f.droppable {
			over.Policy = f.policyOr(over.Policy)
		}
	}
	c.mu.Unlock()
	if err != nil {
		f.Release()
	}
	if over.Limit > 0 || over.Conflated > 0 {
		c.handler.OnOverflow(over)
	}
	if high {
		c.handler.OnBackpressure(messages, bytes)
	}
	return err
}

// AwaitLowWater waits while the send queue has been more than half full and not less than a
// quarter full since then. Producers that fill the queue again at once do not prolong the wait.
func (c *Conn) AwaitLowWater() {
	if !c.high.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.lowered
	_ = c.waitWhileLocked(patience{}, func() bool { return c.high.Load() && c.lowered == before })
}

// A patience bounds how long a goroutine waits. The zero value waits for as long as it takes.
type patience struct {
	done    <-chan struct{}
	expired <-chan time.Time
}

// waitWhileLocked waits until busy returns false or the connection is closing, or returns ErrCanceled or
// ErrTimeout. It must be called with the lock held, which it releases meanwhile, and calls busy with
// it.
func (c *Conn) waitWhileLocked(p patience, busy func() bool) error {
	for busy() && !c.closing.Load() {
		if err := c.awaitProgressLocked(p); err != nil {
			return err
		}
	}
	return nil
}

// awaitProgressLocked waits until the writer has taken or written something or the connection is
// aborted, or returns ErrCanceled or ErrTimeout. It must be called with the lock held, which it
// releases meanwhile.
func (c *Conn) awaitProgressLocked(p patience) error {
	w := c.waitsLocked()
	if w.progress == nil {
		w.progress = make(chan struct{})
	}
	progress := w.progress
	if c.hasQueuedLocked() {
		c.startWriterLocked()
	}
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-progress:
		return nil
	case <-p.done:
		return ErrCanceled
	case <-p.expired:
		return ErrTimeout
	}
}

func (c *Conn) signalProgressLocked() {
	if c.waits != nil && c.waits.progress != nil {
		close(c.waits.progress)
		c.waits.progress = nil
	}
}

// enqueueControlLocked queues a control frame and starts the writer.
func (c *Conn) enqueueControlLocked(f *Frame) {
	c.enqueueLocked(f)
	c.startWriterLocked()
}

// startWriterLocked lets another goroutine write what is queued, unless one does already or will
// when Handler.Serve returns or blocks.
func (c *Conn) startWriterLocked() {
	switch {
	case c.served.Load():
	case !c.polled:
		if c.writer.CompareAndSwap(writerIdle, writerRunning) {
			go c.writeLoop()
		}
	case c.writer.CompareAndSwap(writerIdle, writerQueued):
		c.opts.Engine.flushers[c.sock.raw.Loop()].add(c)
	}
}

// Wake writes what is queued, on another goroutine. What is queued before that
// goroutine runs leaves in the same system call. While Handler.Serve runs in an event loop, Wake does
// nothing: what is queued is written when Serve returns or blocks.
func (c *Conn) Wake() {
	if c.writer.Load() != writerIdle || c.served.Load() {
		return // the writer becomes idle only after it has found the queue empty
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hasQueuedLocked() {
		c.startWriterLocked()
	}
}

// Flush writes what is queued, unless a goroutine does that already, or Handler.Serve runs in an
// event loop. On a connection that is in no event loop, it may block for Options.WriteTimeout.
func (c *Conn) Flush() {
	if c.writer.Load() != writerIdle || c.served.Load() {
		return
	}
	c.mu.Lock()
	start := c.hasQueuedLocked() && c.writer.CompareAndSwap(writerIdle, writerRunning)
	c.mu.Unlock()
	if start {
		c.writeLoop()
	}
}

// Pending returns how much waits to be written or is being written.
func (c *Conn) Pending() (messages, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	messages, bytes = c.queuedLocked()
	if c.inFlight != nil {
		messages += c.inFlight.messages
		bytes += c.inFlight.bytes
	}
	return messages, bytes
}

// A Write describes one system call.
type Write struct {
	Frames int
	Bytes  int           // of frames, compressed
	Waited time.Duration // since the oldest message was created; 0 if there was none
}

// writeLoop writes until the queue is empty, so that an idle connection has no writer. If the
// socket is in an event loop and has no room, another goroutine goes on.
func (c *Conn) writeLoop() {
	for b := c.nextBatch(); b != nil; b = c.nextBatch() {
		w := c.encodeBatch(b)
		if c.write(&w); w.blocked {
			c.writer.Store(writerBlocked)
			go c.writeRest(w)
			return
		}
		c.finishWrite(&w)
	}
}

// A batch is what one system call writes.
type batch struct {
	queue   *sendQueue
	bytes   []byte
	joined  *netpoll.Buffer // of bytes; nil for a single frame
	written int
	blocked bool // there is no room for the rest
	err     error
}

// encodeBatch returns the bytes of a batch as this peer gets them.
func (c *Conn) encodeBatch(q *sendQueue) batch {
	b := batch{queue: q}
	if len(q.frames) == 1 {
		b.bytes = c.frameBytes(q.frames[0])
		return b
	}
	b.joined = netpoll.NewBuffer(netpoll.ClassFor(c.opts.BufferBytes))
	for _, f := range q.frames {
		b.joined.Bytes = append(b.joined.Bytes, c.frameBytes(f)...)
	}
	b.bytes = b.joined.Bytes
	return b
}

// write writes what is left of a batch.
func (c *Conn) write(b *batch) {
	s, n := &c.sock, 0
	switch {
	case c.writeFailed:
		b.err = net.ErrClosed
	case s.conn == nil:
		n, b.err = s.raw.Write(b.bytes[b.written:])
	case c.polled:
		n, b.err = c.tryWriteTLS(s.tls(), b.bytes, b.queue.begun)
	default:
		n, b.err = c.writeConn(b.bytes, b.queue.begun)
	}
	b.written += n
	b.blocked = b.err == nil && b.written < len(b.bytes)
	c.writeFailed = b.err != nil
}

// writeRest waits for room until a batch is written, and then goes on with writeLoop.
func (c *Conn) writeRest(b batch) {
	if t := c.sock.tls(); t != nil {
		c.writeWaitingTLS(t, &b)
	}
	for b.blocked {
		if b.err = c.awaitWritable(time.Now().Add(c.opts.WriteTimeout)); b.err != nil {
			c.writeFailed = true
			break
		}
		c.write(&b)
	}
	c.writer.Store(writerRunning)
	c.finishWrite(&b)
	c.writeLoop()
}

// finishWrite reports a batch that has been written or has failed.
func (c *Conn) finishWrite(b *batch) {
	report := Write{Frames: len(b.queue.frames), Bytes: b.written, Waited: waited(b.queue.oldest(), b.queue.begun)}
	if b.joined != nil {
		b.joined.Release()
	}
	c.finishBatch(b.queue, b.err == nil)
	switch {
	case b.err != nil:
		c.Abort()
	case report.Bytes > 0 && c.opts.OnWrite != nil:
		c.opts.OnWrite(report)
	}
}

// nextBatch takes what is written in one system call. The rest stays in the queue, where
// a policy can drop it.
func (c *Conn) nextBatch() *sendQueue {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queueLocked()
	if q == nil {
		c.writer.Store(writerIdle)
		return nil
	}
	b := q.take(c.opts.BufferBytes)
	b.begun = time.Now()
	if b == q {
		c.queue = nil
	}
	c.inFlight = b
	c.updateHigh()
	c.signalProgressLocked()
	return b
}

// waited returns the age of the oldest message, or 0 if there is none.
func waited(oldest, now time.Time) time.Duration {
	if oldest.IsZero() {
		return 0
	}
	return max(now.Sub(oldest), 0)
}

func (c *Conn) finishBatch(b *sendQueue, written bool) {
	defer b.release()
	closing := b.frames[len(b.frames)-1].closing()
	c.mu.Lock()
	c.inFlight = nil
	if closing && written {
		c.closeWritten = true
	}
	halfClose := c.halfClose && c.closeWritten
	c.signalProgressLocked()
	c.mu.Unlock()
	if halfClose {
		c.sock.closeWrite()
	}
}

// frameBytes returns a frame as this peer gets it.
func (c *Conn) frameBytes(f *Frame) []byte {
	if !c.deflates {
		return f.bytes()
	}
	return c.opts.Deflater.bytes(f, c.windows.ToSend())
}

// awaitCloseWritten waits until the close frame has been written or the connection has
// been aborted, which happens after CloseTimeout.
func (c *Conn) awaitCloseWritten() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.closeWritten && !c.aborted {
		_ = c.awaitProgressLocked(patience{})
	}
}

// closeWriteAfterClose ends the stream behind the close frame, for a peer whose messages
// are not read after that.
func (c *Conn) closeWriteAfterClose() {
	c.mu.Lock()
	c.halfClose = true
	written := c.closeWritten
	c.mu.Unlock()
	if written {
		c.sock.closeWrite()
	}
}
