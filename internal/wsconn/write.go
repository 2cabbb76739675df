package wsconn

// A queued message is a Frame, or a control frame of our own.
type queued struct {
	frame   *Frame
	control []byte
}

func (q queued) bytes() []byte {
	if q.frame != nil {
		return q.frame.buf[q.frame.start:]
	}
	return q.control
}

func (q queued) closing() bool { return len(q.control) > 0 && q.control[0] == finClose }

// size is what q counts for in the queue's limit.
func (q queued) size() int {
	if q.frame == nil {
		return 0
	}
	return len(q.bytes())
}

func (q queued) release() {
	if q.frame != nil {
		q.frame.Release()
	}
}

// Send queues f, taking over a reference, and returns at once. Frames leave in
// the order in which they were sent.
func (c *Conn) Send(f *Frame) error {
	q := queued{frame: f}
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		f.Release()
		return ErrClosed
	}
	if full := c.full(q); full != nil {
		c.mu.Unlock()
		f.Release()
		c.Close(CodeTryAgainLater, "client reads too slowly")
		return full
	}
	c.bytes += q.size()
	c.enqueue(q)
	c.mu.Unlock()
	return nil
}

// full returns an error if q does not fit into the queue. It must be called with
// the lock held.
func (c *Conn) full(q queued) *QueueFullError {
	if n := len(c.queue) + 1; n > c.opts.QueueMessages {
		return &QueueFullError{Queued: n, Limit: c.opts.QueueMessages}
	}
	if n := c.bytes + q.size(); n > c.opts.QueueBytes {
		return &QueueFullError{Queued: n, Limit: c.opts.QueueBytes}
	}
	return nil
}

// Pending returns how many bytes of frames wait to be written.
func (c *Conn) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// enqueue must be called with the lock held.
func (c *Conn) enqueue(q queued) {
	c.queue = append(c.queue, q)
	if !c.draining {
		c.draining = true
		go c.drainFunc()
	}
}

// drain writes until the queue is empty, so that no idle connection has a
// writer.
func (c *Conn) drain() {
	for {
		c.mu.Lock()
		items := c.queue
		if len(items) == 0 {
			c.draining = false
			c.mu.Unlock()
			return
		}
		c.queue, c.spare = c.spare[:0], nil
		c.mu.Unlock()

		err := c.writeAll(items)
		written := 0
		for i, q := range items {
			written += q.size()
			q.release()
			items[i] = queued{}
		}
		c.mu.Lock()
		c.bytes -= written
		c.spare = items[:0]
		c.mu.Unlock()
		if err != nil {
			c.Abort()
		}
	}
}

// writeAll writes the items in as few system calls as a batch buffer allows.
func (c *Conn) writeAll(items []queued) error {
	if len(items) == 1 {
		return c.sock.writeFrames(items[0].bytes(), items[0].closing())
	}
	batch := newBuffer(batchClass)
	defer batch.Release()
	for _, q := range items {
		frame := q.bytes()
		if len(batch.Bytes)+len(frame) > cap(batch.Bytes) {
			if err := c.sock.writeFrames(batch.Bytes, false); err != nil {
				return err
			}
			batch.Bytes = batch.Bytes[:0]
		}
		if len(frame) > cap(batch.Bytes) {
			if err := c.sock.writeFrames(frame, q.closing()); err != nil {
				return err
			}
			continue
		}
		batch.Bytes = append(batch.Bytes, frame...)
	}
	last := items[len(items)-1]
	return c.sock.writeFrames(batch.Bytes, last.closing())
}

// batchClass is the class of buffer that gathers what leaves in one system call.
const batchClass = 2
