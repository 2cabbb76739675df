package wsconn

import (
	"slices"
	"sync"
	"time"
)

// A batch is frames that leave together.
type batch struct {
	frames []*Frame
}

// Batches are given back when they have been written, so that a connection at
// rest holds none.
var batches = sync.Pool{New: func() any { return new(batch) }}

// maxPooledFrames is what a batch may have grown to and still be reused.
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

// Queue adds f to what leaves once [Conn.Wake] or [Conn.Flush] is called. It takes
// over a reference and returns at once. Frames leave in the order in which they
// were queued. If the queue is full, Options.QueuePolicy decides.
func (c *Conn) Queue(f *Frame) error {
	c.mu.Lock()
	var over Overflow
	err := c.makeRoom(f, &over)
	if err == nil {
		c.enqueue(f)
	}
	messages, bytes, high := c.frames, c.bytes, c.justHigh()
	c.mu.Unlock()
	if err != nil {
		f.Release()
	}
	if over.Limit > 0 {
		c.owner.Overflowed(over)
	}
	if high {
		c.owner.QueueHigh(messages, bytes)
	}
	return err
}

// enqueue must be called with the lock held.
func (c *Conn) enqueue(f *Frame) {
	if c.queue == nil {
		c.queue = batches.Get().(*batch)
	}
	c.queue.frames = append(c.queue.frames, f)
	c.frames += f.messages()
	c.bytes += f.size()
}

// Wake writes what is queued, on another goroutine. What is queued before that
// goroutine runs leaves in the same system call.
func (c *Conn) Wake() {
	if c.startDraining() {
		go c.drainFunc()
	}
}

// Flush writes what is queued, unless a goroutine does that already. It may block
// for Options.WriteTimeout.
func (c *Conn) Flush() {
	if c.startDraining() {
		c.drain()
	}
}

func (c *Conn) startDraining() bool {
	if c.draining.Load() {
		return false // whoever drains has not looked for the last time yet
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue != nil && c.draining.CompareAndSwap(false, true)
}

// Pending returns what waits to be written.
func (c *Conn) Pending() (messages, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frames, c.bytes
}

// A Write is one system call.
type Write struct {
	Frames int
	Bytes  int           // of frames, compressed
	Waited time.Duration // since the oldest message was made; 0 if there was none
}

// drain writes until the queue is empty, so that no connection at rest has a
// writer.
func (c *Conn) drain() {
	for {
		b := c.takeQueue()
		if b == nil {
			return
		}
		at, bytes, err := c.writeAll(b.frames)
		report := Write{Frames: len(b.frames), Bytes: bytes, Waited: b.waited(at)}
		c.written(b)
		switch {
		case err != nil:
			c.Abort()
		case bytes > 0:
			c.owner.Wrote(report)
		}
	}
}

// takeQueue takes what leaves in one system call. The rest stays where a policy can
// get at it.
func (c *Conn) takeQueue() *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.queue
	if b == nil {
		c.draining.Store(false)
		return nil
	}
	n := b.fitting(c.opts.BufferBytes)
	if n == len(b.frames) {
		c.queue = nil
		return b
	}
	first := batches.Get().(*batch)
	first.frames = append(first.frames, b.frames[:n]...)
	b.frames = slices.Delete(b.frames, 0, n)
	return first
}

// fitting returns how many frames fit into n bytes, but at least 1.
func (b *batch) fitting(n int) int {
	for i, f := range b.frames {
		if n -= len(f.wire()); n < 0 {
			return max(i, 1)
		}
	}
	return len(b.frames)
}

// waited returns how old the oldest frame was at a time.
func (b *batch) waited(at time.Time) time.Duration {
	for _, f := range b.frames {
		if !f.At.IsZero() {
			return max(at.Sub(f.At), 0)
		}
	}
	return 0
}

func (c *Conn) written(b *batch) {
	bytes, messages := 0, 0
	for _, f := range b.frames {
		bytes += f.size()
		messages += f.messages()
	}
	c.mu.Lock()
	c.bytes -= bytes
	c.frames -= messages
	c.noLongerHigh()
	c.mu.Unlock()
	b.release()
}

// writeAll writes frames in one system call, and returns when, and how many bytes.
func (c *Conn) writeAll(frames []*Frame) (at time.Time, bytes int, err error) {
	last := frames[len(frames)-1]
	if len(frames) == 1 {
		return c.sock.writeFrames(c.wire(last), last.closing())
	}
	out := newBuffer(classFor(c.opts.BufferBytes))
	defer out.Release()
	for _, f := range frames {
		out.Bytes = append(out.Bytes, c.wire(f)...)
	}
	return c.sock.writeFrames(out.Bytes, last.closing())
}

// wire returns a frame as this peer gets it.
func (c *Conn) wire(f *Frame) []byte {
	if c.deflates {
		return c.opts.Deflater.wire(f)
	}
	return f.wire()
}
