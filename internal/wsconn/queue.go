package wsconn

import (
	"slices"

	"github.com/penstock-go/penstock/errors"
)

// A QueuePolicy is what happens when a frame does not fit into the outgoing
// queue. Only droppable frames are ever dropped; a frame that is not and does not
// fit closes the connection, whatever the policy.
type QueuePolicy uint8

// The policies there are.
const (
	Disconnect QueuePolicy = iota // the connection is closed with 1013
	DropOldest                    // frames are dropped from the front
	DropNewest                    // the frame is dropped
	KeepLatest                    // frames are dropped of whose key there is a later one
)

// An Overflow is what a full queue did.
type Overflow struct {
	Queued, Limit int // messages or bytes, with the one that did not fit
	Dropped       int // frames
}

// ErrDropped is returned for a frame that was dropped at once.
var ErrDropped = errors.New("outgoing queue is full")

// makeRoom returns nil if f fits into the queue, perhaps because others were
// dropped. It must be called with the lock held.
func (c *Conn) makeRoom(f *Frame, over *Overflow) error {
	if c.closing.Load() {
		return ErrClosed
	}
	if !c.full(f, over) {
		return nil
	}
	switch c.opts.QueuePolicy {
	case Disconnect:
	case DropOldest:
		over.Dropped = c.dropFront(f)
	case DropNewest:
		if !f.droppable {
			over.Dropped = c.dropFront(f)
		}
	case KeepLatest:
		over.Dropped = c.dropOutdated(f)
	}
	var still Overflow
	switch {
	case !c.full(f, &still):
		return nil
	case f.droppable && (c.opts.QueuePolicy == DropOldest || c.opts.QueuePolicy == DropNewest):
		over.Dropped++
		return ErrDropped
	default:
		over.Dropped++
		c.closeLocked(CodeTryAgainLater, "client reads too slowly")
		return ErrClosed
	}
}

// full reports whether f does not fit into the queue, and fills in over then.
func (c *Conn) full(f *Frame, over *Overflow) bool {
	if n := c.frames + 1; n > c.opts.QueueMessages {
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
		return 0 // nothing makes room for it
	}
	return c.dropIf(func(queued *Frame) bool {
		var over Overflow
		return queued.droppable && c.full(f, &over)
	})
}

// dropOutdated drops frames of whose key there is a later one, f included.
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

// dropIf takes frames out of the queue, from the front.
func (c *Conn) dropIf(drop func(*Frame) bool) (dropped int) {
	if c.queue == nil {
		return 0
	}
	c.queue.frames = slices.DeleteFunc(c.queue.frames, func(f *Frame) bool {
		if !drop(f) {
			return false
		}
		dropped++
		c.frames -= f.messages()
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

// justHigh reports that the queue has become more than half full.
func (c *Conn) justHigh() bool {
	if c.high || 2*c.frames <= c.opts.QueueMessages && 2*c.bytes <= c.opts.QueueBytes {
		return false
	}
	c.high = true
	return true
}

func (c *Conn) noLongerHigh() {
	if c.high && 4*c.frames < c.opts.QueueMessages && 4*c.bytes < c.opts.QueueBytes {
		c.high = false
	}
}
