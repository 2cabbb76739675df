package wsconn

import (
	"sync/atomic"
	"time"
)

// producers lets the callers of QueueTurn queue in the order in which they began to wait.
type producers struct {
	turn    chan struct{} // of capacity 1: full while a producer has the turn
	waiting int           // producers that wait for the turn or have it; guarded by Conn.mu
}

// QueueTurn is Queue, except that it first waits while the queue is high (see AwaitLowWater) or
// f does not fit. Callers that wait are served in the order in which they began to wait. It
// returns ErrCanceled if done is closed first or if canceled, which may be nil, is set when f would
// be queued, ErrTimeout if that takes longer than Options.SendTimeout, and ErrTooLong if f is longer
// than Options.QueueBytes. The frame should not be droppable.
func (c *Conn) QueueTurn(f *Frame, done <-chan struct{}, canceled *atomic.Bool) error {
	if f.size() > c.opts.QueueBytes {
		f.Release()
		return ErrTooLong
	}
	busy := func() bool { return c.high.Load() || c.full(f, nil) }
	c.mu.Lock()
	if (c.waits == nil || c.waits.producers.waiting == 0) && !busy() {
		return c.queueUnlessAndUnlock(canceled, f)
	}
	p := &c.lockedWaits().producers
	p.waiting++
	c.mu.Unlock()
	timer := time.NewTimer(c.opts.SendTimeout)
	defer timer.Stop()
	patience := patience{done, timer.C}
	err := p.await(patience)
	if err == nil {
		defer func() { <-p.turn }()
	}
	c.mu.Lock()
	if err == nil {
		err = c.waitWhile(patience, busy)
	}
	p.waiting--
	if err != nil {
		c.mu.Unlock()
		f.Release()
		return err
	}
	return c.queueUnlessAndUnlock(canceled, f)
}

// await returns nil when it has got the turn, or ErrCanceled or ErrTimeout. Goroutines that wait to
// send on a channel are served in order.
func (p *producers) await(patience patience) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-patience.done:
		return ErrCanceled
	case <-patience.expired:
		return ErrTimeout
	}
}

// QueueUnless is Queue, except that it returns ErrCanceled if canceled is set when f would be
// queued. If canceled is set before another frame is queued, f therefore does not follow that one.
func (c *Conn) QueueUnless(canceled *atomic.Bool, f *Frame) error {
	c.mu.Lock()
	return c.queueUnlessAndUnlock(canceled, f)
}

// queueUnlessAndUnlock must be called with the lock held, which it releases.
func (c *Conn) queueUnlessAndUnlock(canceled *atomic.Bool, f *Frame) error {
	if canceled != nil && canceled.Load() {
		c.mu.Unlock()
		f.Release()
		return ErrCanceled
	}
	return c.queueAndUnlock(f)
}
