package wsconn

import (
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/internal/netpoll"
)

// A batch is frames that are written together.
type batch struct {
	frames []*Frame
}

// Batches return to the pool when they have been written, so that an idle connection
// holds none.
var batches = sync.Pool{New: func() any { return new(batch) }}

// maxPooledFrames is the largest capacity of a batch that is reused.
const maxPooledFrames = 1024

func (b *batch) release() {
	for i, f := range b.frames {
		f.Release()
		b.frames[i] = nil
	}
	b.frames = b.frames[:0]
	if cap(b.frames) <= maxPooledFrames {
		batches.Put(b)
	}
}

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
	var over Overflow
	c.waitWhile(func() bool { return c.messages > 0 && c.full(f, &over) })
	return c.queueAndUnlock(f)
}

// queueAndUnlock must be called with the lock held. It notifies the handler after it has
// released the lock.
func (c *Conn) queueAndUnlock(f *Frame) error {
	var over Overflow
	err := c.ensureCapacity(f, &over)
	if err == nil {
		c.enqueue(f)
	}
	messages, bytes, high := c.messages, c.bytes, c.becomesHigh()
	c.mu.Unlock()
	if err != nil {
		f.Release()
	}
	if over.Limit > 0 {
		c.handler.OnOverflow(over)
	}
	if high {
		c.handler.OnBackpressure(messages, bytes)
	}
	return err
}

// AwaitLowWater waits while the outgoing queue has been more than half full and not less
// than a quarter full since then.
func (c *Conn) AwaitLowWater() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waitWhile(func() bool { return c.high })
}

// waitWhile waits until busy returns false or the connection is closing. It must be
// called with the lock held, which it releases meanwhile, and calls busy with it.
func (c *Conn) waitWhile(busy func() bool) {
	for busy() && !c.closing.Load() {
		c.awaitProgress()
	}
}

// awaitProgress waits until the writer has written something or the connection is
// aborted. It must be called with the lock held, which it releases meanwhile.
func (c *Conn) awaitProgress() {
	if c.progress == nil {
		c.progress = make(chan struct{})
	}
	progress := c.progress
	if c.queue != nil && c.writing.CompareAndSwap(false, true) {
		go c.writeFunc()
	}
	c.mu.Unlock()
	<-progress
	c.mu.Lock()
}

// signalProgress must be called with the lock held.
func (c *Conn) signalProgress() {
	if c.progress != nil {
		close(c.progress)
		c.progress = nil
	}
}

// enqueue must be called with the lock held.
func (c *Conn) enqueue(f *Frame) {
	if c.queue == nil {
		c.queue = batches.Get().(*batch)
	}
	c.queue.frames = append(c.queue.frames, f)
	c.messages += f.messages()
	c.bytes += f.size()
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

// Pending returns how much waits to be written.
func (c *Conn) Pending() (messages, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.messages, c.bytes
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
		report := Write{Frames: len(b.frames), Bytes: bytes, Waited: b.waited(now)}
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
func (c *Conn) nextBatch() *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.queue
	if b == nil {
		c.writing.Store(false)
		return nil
	}
	n := b.prefixWithin(c.opts.BufferBytes)
	if n == len(b.frames) {
		c.queue = nil
		return b
	}
	first := batches.Get().(*batch)
	first.frames = append(first.frames, b.frames[:n]...)
	b.frames = slices.Delete(b.frames, 0, n)
	return first
}

// prefixWithin returns how many frames fit into n bytes, but at least 1.
func (b *batch) prefixWithin(n int) int {
	for i, f := range b.frames {
		if n -= len(f.bytes()); n < 0 {
			return max(i, 1)
		}
	}
	return len(b.frames)
}

// waited returns the age of the oldest message.
func (b *batch) waited(now time.Time) time.Duration {
	for _, f := range b.frames {
		if !f.At.IsZero() {
			return max(now.Sub(f.At), 0)
		}
	}
	return 0
}

func (c *Conn) finishBatch(b *batch, written bool) {
	bytes, messages := 0, 0
	for _, f := range b.frames {
		bytes += f.size()
		messages += f.messages()
	}
	closing := b.frames[len(b.frames)-1].closing()
	b.release()
	c.mu.Lock()
	c.bytes -= bytes
	c.messages -= messages
	c.updateHigh()
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
		c.awaitProgress()
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
