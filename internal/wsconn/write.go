package wsconn

import "sync"

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
// were queued.
func (c *Conn) Queue(f *Frame) error {
	c.mu.Lock()
	if c.closing.Load() {
		c.mu.Unlock()
		f.Release()
		return ErrClosed
	}
	if full := c.full(f); full != nil {
		c.mu.Unlock()
		f.Release()
		c.Close(CodeTryAgainLater, "client reads too slowly")
		return full
	}
	c.enqueue(f)
	c.mu.Unlock()
	return nil
}

// full returns an error if f does not fit into the queue.
func (c *Conn) full(f *Frame) *QueueFullError {
	if n := c.frames + 1; n > c.opts.QueueMessages {
		return &QueueFullError{Queued: n, Limit: c.opts.QueueMessages}
	}
	if n := c.bytes + f.size(); n > c.opts.QueueBytes {
		return &QueueFullError{Queued: n, Limit: c.opts.QueueBytes}
	}
	return nil
}

// enqueue must be called with the lock held.
func (c *Conn) enqueue(f *Frame) {
	if c.queue == nil {
		c.queue = batches.Get().(*batch)
	}
	c.queue.frames = append(c.queue.frames, f)
	c.frames++
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

// Pending returns how many bytes of frames wait to be written.
func (c *Conn) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// drain writes until the queue is empty, so that no connection at rest has a
// writer.
func (c *Conn) drain() {
	for {
		b := c.takeQueue()
		if b == nil {
			return
		}
		err := c.writeAll(b.frames)
		c.written(b)
		if err != nil {
			c.Abort()
		}
	}
}

func (c *Conn) takeQueue() *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.queue
	if c.queue = nil; b == nil {
		c.draining.Store(false)
	}
	return b
}

func (c *Conn) written(b *batch) {
	bytes := 0
	for _, f := range b.frames {
		bytes += f.size()
	}
	c.mu.Lock()
	c.bytes -= bytes
	c.frames -= len(b.frames)
	c.mu.Unlock()
	b.release()
}

// writeAll writes frames in as few system calls as a buffer allows.
func (c *Conn) writeAll(frames []*Frame) error {
	if len(frames) == 1 {
		return c.sock.writeFrames(frames[0].wire(), frames[0].closing())
	}
	out := newBuffer(gatherClass)
	defer out.Release()
	for _, f := range frames {
		wire := f.wire()
		if len(out.Bytes)+len(wire) > cap(out.Bytes) {
			if err := c.sock.writeFrames(out.Bytes, false); err != nil {
				return err
			}
			out.Bytes = out.Bytes[:0]
		}
		if len(wire) > cap(out.Bytes) {
			if err := c.sock.writeFrames(wire, f.closing()); err != nil {
				return err
			}
			continue
		}
		out.Bytes = append(out.Bytes, wire...)
	}
	last := frames[len(frames)-1]
	return c.sock.writeFrames(out.Bytes, last.closing())
}

// gatherClass is the class of buffer that gathers what leaves in one system call.
const gatherClass = 2
