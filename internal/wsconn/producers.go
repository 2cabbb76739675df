package wsconn

import (
	"sync/atomic"
	"time"
)

// Frames are encoded when the queue is likely to have room, and otherwise in turn: of all goroutines
// that wait to queue an answer, only one holds a frame, and so of those that call QueueTurn. What waits
// outside of the queue is therefore at most two frames, whatever the number of goroutines.

// turns let goroutines wait for room in the order in which they began to wait.
type turns struct {
	turn    chan struct{} // of capacity 1: full while a goroutine has the turn
	waiting int           // goroutines that wait for the turn or have it; guarded by Conn.mu
}

func newTurns() turns { return turns{turn: make(chan struct{}, 1)} }

// QueueAnswer queues the frame that encode returns, as Queue does, except that it waits until the
// queue is empty or the frame fits. An error of encode is returned. If there is no room for the frame,
// encode is called again later. It returns ErrCanceled if canceled, which may be nil, returns true when the
// frame would be queued; it is called under the lock.
func (c *Conn) QueueAnswer(encode func() (*Frame, error), canceled func() bool) error {
	if !c.high.Load() {
		f, err := encode()
		if err != nil {
			return err
		}
		c.mu.Lock()
		if !c.mustWaitLocked(f) {
			return c.queueIfAndUnlock(canceled, f)
		}
		c.mu.Unlock()
		f.Release()
	}
	return c.inTurn(&c.prepareWait().answers, patience{}, func() error {
		f, err := encode()
		if err != nil {
			return err
		}
		c.mu.Lock()
		_ = c.waitWhileLocked(patience{}, func() bool { return c.mustWaitLocked(f) })
		return c.queueIfAndUnlock(canceled, f)
	})
}

// mustWaitLocked reports whether an answer does not fit into the queue. One that does not fit into
// an empty queue need not wait.
func (c *Conn) mustWaitLocked(f *Frame) bool {
	messages, _ := c.queuedLocked()
	return messages > 0 && c.full(f, nil)
}

// QueueTurn queues the frame that encode returns, as Queue does, except that it waits while the queue
// is high (see AwaitLowWater) or the frame does not fit. Callers that wait are served in the order in
// which they began to wait. An error of encode is returned. If there is no room for the frame, encode
// is called again later.
//
// It returns ErrCanceled if done is closed first or if canceled, which may be nil, returns true when the
// frame would be queued, ErrTimeout if that takes longer than Options.SendTimeout, and a *TooLong if
// the frame is longer than Options.QueueBytes. canceled is called under the lock. No policy drops the frame.
func (c *Conn) QueueTurn(encode func() (*Frame, error), done <-chan struct{}, canceled func() bool) error {
	if !c.high.Load() {
		f, err := c.encodeFitting(encode)
		if err != nil {
			return err
		}
		c.mu.Lock()
		if (c.waits == nil || c.waits.producers.waiting == 0) && !c.high.Load() && !c.full(f, nil) {
			return c.queueIfAndUnlock(canceled, f)
		}
		c.mu.Unlock()
		f.Release()
	}
	timer := time.NewTimer(c.opts.SendTimeout)
	defer timer.Stop()
	p := patience{done, timer.C}
	return c.inTurn(&c.prepareWait().producers, p, func() error {
		c.mu.Lock()
		err := c.waitWhileLocked(p, c.high.Load)
		c.mu.Unlock()
		if err != nil {
			return err
		}
		f, err := c.encodeFitting(encode)
		if err != nil {
			return err
		}
		c.mu.Lock()
		if err := c.waitWhileLocked(p, func() bool { return c.high.Load() || c.full(f, nil) }); err != nil {
			c.mu.Unlock()
			f.Release()
			return err
		}
		return c.queueIfAndUnlock(canceled, f)
	})
}

// InTurn calls f when the queue is not high and hasRoom returns true for the messages and the bytes in it, in turn with
// the callers of QueueTurn: f may queue several frames. It returns ErrCanceled if done is closed first,
// ErrTimeout if that takes longer than Options.SendTimeout, and ErrClosed if the connection is closing. hasRoom
// is called under the lock.
func (c *Conn) InTurn(done <-chan struct{}, hasRoom func(messages, bytes int) bool, f func()) error {
	timer := time.NewTimer(c.opts.SendTimeout)
	defer timer.Stop()
	p := patience{done, timer.C}
	return c.inTurn(&c.prepareWait().producers, p, func() error {
		c.mu.Lock()
		err := c.waitWhileLocked(p, func() bool {
			return c.high.Load() || !hasRoom(c.queuedLocked())
		})
		c.mu.Unlock()
		switch {
		case err != nil:
			return err
		case c.closing.Load():
			return ErrClosed
		}
		f()
		return nil
	})
}

// encodeFitting returns the frame that encode returns, which no policy drops, or a *TooLong if it is longer than the
// queue.
func (c *Conn) encodeFitting(encode func() (*Frame, error)) (*Frame, error) {
	f, err := encode()
	if err != nil {
		return nil, err
	}
	f.droppable, f.key = false, ""
	if f.size() > c.opts.QueueBytes {
		tooLong := &TooLong{len(f.Text()), c.opts.QueueBytes}
		f.Release()
		return nil, tooLong
	}
	return f, nil
}

// inTurn waits for a turn and calls f, which may end the goroutine. It returns the error of f, or
// ErrCanceled or ErrTimeout.
func (c *Conn) inTurn(t *turns, p patience, f func() error) error {
	c.mu.Lock()
	t.waiting++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		t.waiting--
		c.mu.Unlock()
	}()
	if err := t.await(p); err != nil {
		return err
	}
	defer func() { <-t.turn }()
	return f()
}

// await returns nil when it has got the turn, or ErrCanceled or ErrTimeout. Goroutines that wait to
// send on a channel are served in order.
func (t *turns) await(p patience) error {
	select {
	case t.turn <- struct{}{}:
		return nil
	case <-p.done:
		return ErrCanceled
	case <-p.expired:
		return ErrTimeout
	}
}

// QueueUnless is Queue, except that it returns ErrCanceled if canceled is set when f would be
// queued. If canceled is set before another frame is queued, f therefore does not follow that one.
func (c *Conn) QueueUnless(canceled *atomic.Bool, f *Frame) error {
	c.mu.Lock()
	return c.queueIfAndUnlock(canceled.Load, f)
}

// AwaitQueuing returns when no frame is just being queued: those that are queued later see in their function
// canceled what the caller has changed before.
func (c *Conn) AwaitQueuing() {
	c.mu.Lock()
	defer c.mu.Unlock()
}

// queueIfAndUnlock must be called with the lock held, which it releases.
func (c *Conn) queueIfAndUnlock(canceled func() bool, f *Frame) error {
	if canceled != nil && canceled() {
		c.mu.Unlock()
		f.Release()
		return ErrCanceled
	}
	return c.queueAndUnlock(f)
}
