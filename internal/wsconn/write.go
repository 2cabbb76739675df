package wsconn

import (
	"time"

	"github.com/penstock-go/penstock/internal/netpoll"
)

// Queue adds f to the frames that [Conn.Wake] or [Conn.Flush] writes. It takes over a
// reference and returns at once. Frames are written in the order in which they were
// queued. If the queue is full, Options.SlowConsumer decides.
func (c *Conn) Queue(f *Frame) error {
	c.mu.Lock()
	return c.queueAndUnlock(f)
}

// QueueWait is Queue, except that it first waits until the queue is empty or f fits.
func (c *Conn) QueueWait(f *Frame) error {
	c.mu.Lock()
	c.waitWhile(nil, func() bool { return c.queue != nil && c.queue.messages > 0 && c.full(f, nil) })
	return c.queueAndUnlock(f)
}

// queueAndUnlock must be called with the lock held. It notifies the handler after it has
// released the lock.
func (c *Conn) queueAndUnlock(f *Frame) error {
	var over Overflow
	err := c.enqueueByPolicy(f, &over)
	high := err == nil && c.becomesHigh()
	var messages, bytes int
	if high {
		messages, bytes = c.queued()
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
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.lowered
	c.waitWhile(nil, func() bool { return c.high && c.lowered == before })
}

// waitWhile waits until busy returns false or the connection is closing, and reports true; or
// until done is closed, and reports false. It must be called with the lock held, which it
// releases meanwhile, and calls busy with it.
func (c *Conn) waitWhile(done <-chan struct{}, busy func() bool) bool {
	for busy() && !c.closing.Load() {
		if !c.awaitProgress(done) {
			return false
		}
	}
	return true
}

// awaitProgress waits until the writer has taken or written something or the connection is
// aborted, and reports true; or until done is closed, and reports false. It must be called with
// the lock held, which it releases meanwhile.
func (c *Conn) awaitProgress(done <-chan struct{}) bool {
	if c.progress == nil {
		c.progress = make(chan struct{})
	}
	progress := c.progress
	if c.queue != nil && c.writing.CompareAndSwap(false, true) {
		go c.writeFunc()
	}
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-progress:
		return true
	case <-done:
		return false
	}
}

// signalProgress must be called with the lock held.
func (c *Conn) signalProgress() {
	if c.progress != nil {
		close(c.progress)
		c.progress = nil
	}
}

// enqueueControl queues a control frame and starts the writer. It must be called with
// the lock held.
func (c *Conn) enqueueControl(f *Frame) {
	c.enqueue(f)
	if c.writing.CompareAndSwap(false, true) {
		go c.writeFunc()
	}
}

// Wake writes what is queued, on another goroutine. What is queued before that
// goroutine runs leaves in the same system call.
func (c *Conn) Wake() {
	if c.startWriting() {
		go c.writeFunc()
	}
}

// Flush writes what is queued, unless a goroutine does that already. It may block for
// Options.WriteTimeout.
func (c *Conn) Flush() {
	if c.startWriting() {
		c.writeLoop()
	}
}

func (c *Conn) startWriting() bool {
	if c.writing.Load() {
		return false // the writer clears the flag only after it has found the queue empty
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue != nil && c.writing.CompareAndSwap(false, true)
}

// Pending returns how much waits to be written or is being written.
func (c *Conn) Pending() (messages, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	messages, bytes = c.queued()
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

// writeLoop writes until the queue is empty, so that an idle connection has no writer.
func (c *Conn) writeLoop() {
	for {
		b := c.nextBatch()
		if b == nil {
			return
		}
		now := time.Now()
		bytes, err := c.writeBatch(b.frames, now)
		report := Write{Frames: len(b.frames), Bytes: bytes, Waited: waited(b.oldest(), now)}
		c.finishBatch(b, err == nil)
		switch {
		case err != nil:
			c.Abort()
		case bytes > 0:
			c.handler.OnWrite(report)
		}
	}
}

// nextBatch takes what is written in one system call. The rest stays in the queue, where
// a policy can drop it.
func (c *Conn) nextBatch() *sendQueue {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queue
	if q == nil {
		c.writing.Store(false)
		return nil
	}
	b := q.take(c.opts.BufferBytes)
	if b == q {
		c.queue = nil
	}
	c.inFlight = b
	c.updateHigh()
	c.signalProgress()
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
	c.signalProgress()
	c.mu.Unlock()
	if halfClose {
		c.sock.closeWrite()
	}
}

// writeBatch writes frames in one system call and returns how many bytes it wrote.
func (c *Conn) writeBatch(frames []*Frame, now time.Time) (int, error) {
	if len(frames) == 1 {
		return c.sock.write(c.frameBytes(frames[0]), now)
	}
	out := netpoll.NewBuffer(netpoll.ClassFor(c.opts.BufferBytes))
	defer out.Release()
	for _, f := range frames {
		out.Bytes = append(out.Bytes, c.frameBytes(f)...)
	}
	return c.sock.write(out.Bytes, now)
}

// frameBytes returns a frame as this peer gets it.
func (c *Conn) frameBytes(f *Frame) []byte {
	if c.deflates {
		return c.opts.Deflater.bytes(f)
	}
	return f.bytes()
}

// awaitCloseWritten waits until the close frame has been written or the connection has
// been aborted, which happens after CloseTimeout.
func (c *Conn) awaitCloseWritten() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.closeWritten && !c.aborted {
		c.awaitProgress(nil)
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
