package wsconn

import (
	"slices"

	"github.com/penstock-go/penstock/errors"
)

// A SlowConsumerPolicy decides what happens when a frame does not fit into the outgoing
// queue. Only droppable frames are ever dropped; any other frame that does not fit
// closes the connection, whatever the policy.
type SlowConsumerPolicy uint8

// The policies.
const (
	Disconnect SlowConsumerPolicy = iota // the connection is closed with 1013
	DropOldest                           // frames are dropped from the front
	DropNewest                           // the new frame is dropped
	Conflate                             // frames are dropped if a later one has their key
)

// An Overflow describes what a full queue did.
type Overflow struct {
	Queued, Limit int // messages or bytes, including the one that did not fit
	Dropped       int // frames
}

// ErrDropped is returned for a frame that was dropped instead of queued.
var ErrDropped = errors.New("outgoing queue is full")

// ensureCapacity returns nil if f fits into the queue, after dropping others if necessary. It
// must be called with the lock held.
func (c *Conn) ensureCapacity(f *Frame, over *Overflow) error {
	if c.closing.Load() {
		return ErrClosed
	}
	if !c.full(f, over) {
		return nil
	}
	switch c.opts.SlowConsumer {
	case Disconnect:
	case DropOldest:
		over.Dropped = c.dropFront(f)
	case DropNewest:
		if !f.droppable {
			over.Dropped = c.dropFront(f)
		}
	case Conflate:
		over.Dropped = c.dropOutdated(f)
	}
	var still Overflow
	switch {
	case !c.full(f, &still):
		return nil
	case f.droppable && (c.opts.SlowConsumer == DropOldest || c.opts.SlowConsumer == DropNewest):
		over.Dropped++
		return ErrDropped
	default:
		over.Dropped++
		c.closeLocked(codeTryAgainLater, "client reads too slowly")
		return ErrClosed
	}
}

// full reports whether f does not fit into the queue, and sets over in that case.
func (c *Conn) full(f *Frame, over *Overflow) bool {
	if n := c.messages + 1; n > c.opts.QueueMessages {
		over.Queued, over.Limit = n, c.opts.QueueMessages
		return true
	}
	if n := c.bytes + f.size(); n > c.opts.QueueBytes {
		over.Queued, over.Limit = n, c.opts.QueueBytes
		return true
	}
	return false
}

// dropFront drops droppable frames from the front until f fits.
func (c *Conn) dropFront(f *Frame) (dropped int) {
	if f.size() > c.opts.QueueBytes {
		return 0 // dropping others cannot help
	}
	return c.dropIf(func(queued *Frame) bool {
		var over Overflow
		return queued.droppable && c.full(f, &over)
	})
}

// dropOutdated drops frames whose key a later one has, f included.
func (c *Conn) dropOutdated(f *Frame) int {
	if c.queue == nil {
		return 0
	}
	last := map[string]*Frame{}
	for _, queued := range append(slices.Clone(c.queue.frames), f) {
		last[queued.key] = queued
	}
	return c.dropIf(func(queued *Frame) bool {
		return queued.key != "" && last[queued.key] != queued
	})
}

// dropIf removes frames from the queue, in order.
func (c *Conn) dropIf(drop func(*Frame) bool) (dropped int) {
	if c.queue == nil {
		return 0
	}
	c.queue.frames = slices.DeleteFunc(c.queue.frames, func(f *Frame) bool {
		if !drop(f) {
			return false
		}
		dropped++
		c.messages -= f.messages()
		c.bytes -= f.size()
		f.Release()
		return true
	})
	if len(c.queue.frames) == 0 {
		c.queue.release()
		c.queue = nil
	}
	return dropped
}

// becomesHigh reports whether the queue has just become more than half full.
func (c *Conn) becomesHigh() bool {
	if c.high || 2*c.messages <= c.opts.QueueMessages && 2*c.bytes <= c.opts.QueueBytes {
		return false
	}
	c.high = true
	return true
}

// updateHigh notes that the queue is less than a quarter full again.
func (c *Conn) updateHigh() {
	if c.high && 4*c.messages < c.opts.QueueMessages && 4*c.bytes < c.opts.QueueBytes {
		c.high = false
	}
}
