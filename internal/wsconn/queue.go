package wsconn

import (
	"fmt"
	"math"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A SlowConsumerPolicy decides what happens to a droppable frame for a client that reads
// slowly. Any other frame that does not fit into the send queue closes the connection, whatever
// the policy.
//
// A queue that is full is written first, so that a policy applies only if the kernel takes no more.
// The limits of the queue apply to frames that wait. Those that have been handed to the writer
// do not count: they are at most one batch of Options.BufferBytes, or one longer frame.
type SlowConsumerPolicy uint8

// The policies.
const (
	DefaultPolicy SlowConsumerPolicy = iota // that of the connection; in Options, Disconnect
	Disconnect                              // a frame that does not fit closes the connection with 1013
	DropOldest                              // frames are dropped from the front
	DropNewest                              // the new frame is dropped
	Conflate                                // a queued frame is replaced by a later one of its key
)

// An Overflow describes what queueing a frame has done to other frames, or to itself.
type Overflow struct {
	Policy        SlowConsumerPolicy // of the frame, or the connection's if the frame is not droppable
	Queued, Limit int                // messages or bytes, including the one that did not fit; 0 if it did
	Option        string             // that sets Limit
	Dropped       int                // frames that did not fit
	Conflated     int                // frames that were replaced
}

// Errors of a frame that was not queued. The application receives them, except ErrCanceled.
var (
	ErrDropped  = &errors.Error{Code: errors.ResourceExhausted, Message: slowClient}
	ErrTimeout  = &errors.Error{Code: errors.DeadlineExceeded, Message: slowClient}
	ErrCanceled = errors.New("canceled while waiting for the send queue")
)

const slowClient = "client reads too slowly"

// A TooLong is the error for a frame that is longer than the send queue.
type TooLong struct{ Bytes, Limit int }

// Error describes the frame.
func (e *TooLong) Error() string {
	return fmt.Sprintf("message of %d bytes is longer than the send queue, which has %d", e.Bytes, e.Limit)
}

// enqueueByPolicyLocked queues f, after replacing or dropping others if necessary.
func (c *Conn) enqueueByPolicyLocked(f *Frame, over *Overflow) error {
	policy, place := f.policyOr(c.opts.SlowConsumer), -1
	if c.full(f, nil) && !c.replaces(f, policy) {
		c.makeRoomLocked(f)
	}
	if c.closing.Load() {
		return ErrClosed
	}
	if c.replaces(f, policy) {
		place = c.queue.find(f.key)
		c.queue.drop(place)
		over.Conflated = 1
	}
	if c.full(f, over) {
		if err := c.makeRoom(f, policy, over); err != nil {
			over.Dropped++
			return err
		}
	}
	c.enqueueAtLocked(f, place)
	return nil
}

// replaces reports whether f replaces a frame of its key.
func (c *Conn) replaces(f *Frame, policy SlowConsumerPolicy) bool {
	if policy != Conflate || f.key == "" {
		return false
	}
	queue := c.queueLocked()
	return queue != nil && queue.find(f.key) >= 0
}

// makeRoom drops frames until f fits. A frame that fits into an empty queue and would be the
// only one of its kind exceeds the limits instead: its client must not end on an old state
// because replies fill the queue.
func (c *Conn) makeRoom(f *Frame, policy SlowConsumerPolicy, over *Overflow) error {
	fitsAlone := f.size() <= c.opts.QueueBytes
	if fitsAlone && policy != DropNewest {
		over.Dropped = c.queueLocked().shed(func() bool { return c.full(f, nil) })
	}
	switch {
	case !c.full(f, nil):
		return nil
	case fitsAlone && policy == DropOldest:
		return nil // what is left must not be dropped
	case fitsAlone && policy == Conflate && f.key != "" && c.queueLocked().conflatable == 0:
		return nil
	case policy == DropOldest || policy == DropNewest:
		return ErrDropped
	default:
		c.closeSlowLocked()
		return ErrClosed
	}
}

// full reports whether f does not fit into the queue, and sets over in that case, which may be
// nil.
func (c *Conn) full(f *Frame, over *Overflow) bool {
	messages, bytes := c.queuedLocked()
	n, limit, option := messages+1, c.opts.QueueMessages, "router.Limits.QueueMessages"
	if n <= limit {
		n, limit, option = bytes+f.size(), c.opts.QueueBytes, "router.Limits.QueueBytes"
	}
	if n > limit && over != nil {
		over.Queued, over.Limit, over.Option = n, limit, option
	}
	return n > limit
}

// queuedLocked returns what waits in the queue.
func (c *Conn) queuedLocked() (messages, bytes int) {
	switch {
	case c.queue != nil:
		return c.queue.messages, c.queue.bytes
	case c.first != nil:
		size := c.first.size() // 0 if it is a control frame
		return min(size, 1), size
	default:
		return 0, 0
	}
}

// hasQueuedLocked reports whether any frame waits.
func (c *Conn) hasQueuedLocked() bool { return c.first != nil || c.queue != nil }

// queueLocked returns the frames that wait as a queue, or nil if there are none.
func (c *Conn) queueLocked() *sendQueue {
	if c.first != nil {
		c.queue = newSendQueue(c.opts.SlowConsumer)
		c.queue.push(c.first)
		c.first = nil
	}
	return c.queue
}

func (c *Conn) enqueueLocked(f *Frame) { c.enqueueAtLocked(f, -1) }

// enqueueAtLocked is enqueueLocked for a frame that replaces the one that was dropped at place, unless that
// is -1.
func (c *Conn) enqueueAtLocked(f *Frame, place int) {
	switch queue := c.queueLocked(); {
	case queue == nil:
		c.first = f
	case place < 0:
		queue.push(f)
	default:
		queue.put(f, place)
	}
	messages, bytes := c.queuedLocked()
	c.peakMessages = max(c.peakMessages, int32(min(messages, math.MaxInt32)))
	c.peakBytes = max(c.peakBytes, int32(min(bytes, math.MaxInt32)))
}

// becomesHighLocked reports whether the queue has just become more than half full.
func (c *Conn) becomesHighLocked() bool {
	messages, bytes := c.queuedLocked()
	if c.high.Load() || 2*messages <= c.opts.QueueMessages && 2*bytes <= c.opts.QueueBytes {
		return false
	}
	c.high.Store(true)
	return true
}

// High reports whether the send queue has been more than half full, and not less than a quarter full since
// then.
func (c *Conn) High() bool { return c.high.Load() }

// updateHigh notes that the queue is less than a quarter full again.
func (c *Conn) updateHigh() {
	messages, bytes := c.queuedLocked()
	if c.high.Load() && 4*messages < c.opts.QueueMessages && 4*bytes < c.opts.QueueBytes {
		c.high.Store(false)
		c.lowered++
	}
}

// QueueStats describes a send queue at one moment.
type QueueStats struct {
	Messages, Bytes               int       // that wait
	WritingMessages, WritingBytes int       // handed to the writer
	Oldest                        time.Time // when the first of all these was created; the zero Time if there is none
	PeakMessages, PeakBytes       int       // highest number that has waited since the connection was accepted
	High                          bool      // more than half full, and not less than a quarter full since then
}

// QueueStats returns a snapshot.
func (c *Conn) QueueStats() QueueStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := QueueStats{PeakMessages: int(c.peakMessages), PeakBytes: int(c.peakBytes), High: c.high.Load()}
	s.Messages, s.Bytes = c.queuedLocked()
	if queue := c.queueLocked(); queue != nil {
		s.Oldest = queue.oldest()
	}
	if b := c.inFlight; b != nil {
		s.WritingMessages, s.WritingBytes = b.messages, b.bytes
		if at := b.oldest(); !at.IsZero() {
			s.Oldest = at
		}
	}
	return s
}
