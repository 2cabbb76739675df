package wsconn

import (
	"sync"
	"time"
)

// A sendQueue holds frames in the order in which they are written. It belongs to Conn.mu while
// frames wait in it, and to the writing goroutine once they are being written.
type sendQueue struct {
	policy   SlowConsumerPolicy // of frames that have none of their own
	frames   []*Frame           // nil where a frame was dropped or has been taken
	head     int                // frames before it have been taken
	holes    int                // nil entries from head on
	messages int
	pongs    int
	bytes    int       // of messages
	begun    time.Time // when they were handed to the writer

	sheddable   int // frames that shed may drop
	shedFrom    int // no frame before it is sheddable
	conflatable int // frames that a later frame of their key replaces
	fence       int // no data frame from here on is not conflatable

	// index holds the conflatable frames by their key, once indexed is set. A short queue is
	// scanned instead, so that a client that keeps up costs no index.
	index   map[string]int
	indexed bool
}

// maxScannedFrames is the length of the longest queue that has no index.
const maxScannedFrames = 8

// Queues return to the pool when they have been written, so that an idle connection holds
// none.
var sendQueues = sync.Pool{New: func() any { return new(sendQueue) }}

// maxPooledFrames is the largest capacity of a queue that is reused.
const maxPooledFrames = 1024

func newSendQueue(policy SlowConsumerPolicy) *sendQueue {
	q := sendQueues.Get().(*sendQueue)
	q.policy = policy
	return q
}

// release gives up the frames and the queue.
func (q *sendQueue) release() {
	for i, f := range q.frames {
		if f != nil {
			f.Release()
			q.frames[i] = nil
		}
	}
	if cap(q.frames) > maxPooledFrames {
		return
	}
	clear(q.index)
	*q = sendQueue{frames: q.frames[:0], index: q.index}
	sendQueues.Put(q)
}

// policyOf returns the policy of a frame. A frame that is not droppable has that of Disconnect.
func (q *sendQueue) policyOf(f *Frame) SlowConsumerPolicy { return f.policyOr(q.policy) }

// sheddableFrame reports whether a full queue may drop f to make room.
func (q *sendQueue) sheddableFrame(f *Frame) bool {
	policy := q.policyOf(f)
	return policy == DropOldest || policy == DropNewest
}

// conflatableFrame reports whether a later frame of its key replaces f.
func (q *sendQueue) conflatableFrame(f *Frame) bool {
	return f.key != "" && q.policyOf(f) == Conflate
}

// len returns the number of entries that wait, holes included.
func (q *sendQueue) len() int { return len(q.frames) - q.head }

func (q *sendQueue) push(f *Frame) {
	if len(q.frames) == cap(q.frames) && 2*(q.head+q.holes) > len(q.frames) {
		q.compact()
	}
	q.frames = append(q.frames, f)
	q.count(f, len(q.frames)-1)
}

// put stores a frame at the place of one that drop has removed, unless a frame that conflation
// must not overtake was queued behind that one: then it appends.
func (q *sendQueue) put(f *Frame, place int) {
	if place < q.fence {
		q.push(f)
		return
	}
	q.frames[place] = f
	q.holes--
	q.count(f, place)
}

// count adds a frame at index i to the counters.
func (q *sendQueue) count(f *Frame, i int) {
	size := f.size()
	if size == 0 { // a control frame
		if f.buf[f.start] == finPong {
			q.pongs++
		}
		return
	}
	q.messages++
	q.bytes += size
	switch {
	case q.conflatableFrame(f):
		q.conflatable++
		if q.indexed {
			q.index[f.key] = i
		}
		return
	case q.sheddableFrame(f):
		q.sheddable++
	}
	q.fence = i + 1
}

// uncount subtracts a frame that leaves the queue.
func (q *sendQueue) uncount(f *Frame) {
	size := f.size()
	if size == 0 {
		if f.buf[f.start] == finPong {
			q.pongs--
		}
		return
	}
	q.messages--
	q.bytes -= size
	switch {
	case q.conflatableFrame(f):
		q.conflatable--
		if q.indexed {
			delete(q.index, f.key)
		}
	case q.sheddableFrame(f):
		q.sheddable--
	}
}

// find returns the index of the conflatable frame of a key, or -1. The queue holds at most one.
func (q *sendQueue) find(key string) int {
	if q.conflatable == 0 {
		return -1
	}
	if !q.indexed && q.len() > maxScannedFrames {
		q.buildIndex()
	}
	if q.indexed {
		if i, ok := q.index[key]; ok {
			return i
		}
		return -1
	}
	for i := len(q.frames) - 1; i >= q.head; i-- {
		if f := q.frames[i]; f != nil && f.key == key && q.conflatableFrame(f) {
			return i
		}
	}
	return -1
}

func (q *sendQueue) buildIndex() {
	if q.index == nil {
		q.index = make(map[string]int, 2*maxScannedFrames)
	}
	q.indexed = true
	for i := q.head; i < len(q.frames); i++ {
		if f := q.frames[i]; f != nil && q.conflatableFrame(f) {
			q.index[f.key] = i
		}
	}
}

// drop removes the frame at index i and leaves a hole.
func (q *sendQueue) drop(i int) {
	f := q.frames[i]
	q.frames[i] = nil
	q.holes++
	q.uncount(f)
	f.Release()
}

// newest returns the index of the newest frame with a first byte, or -1.
func (q *sendQueue) newest(first byte) int {
	for i := len(q.frames) - 1; i >= q.head; i-- {
		if f := q.frames[i]; f != nil && f.buf[f.start] == first {
			return i
		}
	}
	return -1
}

// shed drops sheddable frames, oldest first, while full returns true.
func (q *sendQueue) shed(full func() bool) (dropped int) {
	for i := max(q.shedFrom, q.head); q.sheddable > 0 && full(); i++ {
		q.shedFrom = i + 1
		if f := q.frames[i]; f != nil && f.size() > 0 && q.sheddableFrame(f) {
			q.drop(i)
			dropped++
		}
	}
	return dropped
}

// compact removes the holes. Each call follows at least as many drops and takes as it moves
// frames, so its cost per frame is constant.
func (q *sendQueue) compact() {
	if q.head == 0 && q.holes == 0 {
		return
	}
	n, fence, shedFrom := 0, 0, 0
	for i := q.head; i < len(q.frames); i++ {
		f := q.frames[i]
		if f == nil {
			continue
		}
		q.frames[n] = f
		if q.indexed && f.size() > 0 && q.conflatableFrame(f) {
			q.index[f.key] = n
		}
		n++
		if i < q.fence {
			fence = n
		}
		if i < q.shedFrom {
			shedFrom = n
		}
	}
	clear(q.frames[n:])
	q.frames = q.frames[:n]
	q.head, q.holes, q.fence, q.shedFrom = 0, 0, fence, shedFrom
}

// take removes the frames that are written in one system call: those that fit into limit bytes,
// and at least one. It returns q if these are all.
func (q *sendQueue) take(limit int) *sendQueue {
	end := q.prefixWithin(limit)
	if end == len(q.frames) {
		q.compact()
		return q
	}
	first := newSendQueue(q.policy)
	for i := q.head; i < end; i++ {
		f := q.frames[i]
		if f == nil {
			q.holes--
			continue
		}
		q.frames[i] = nil
		q.uncount(f)
		first.push(f)
	}
	q.head = end
	return first
}

// prefixWithin returns the index behind the frames that fit into n bytes, but at least one.
func (q *sendQueue) prefixWithin(n int) int {
	some := false
	for i := q.head; i < len(q.frames); i++ {
		f := q.frames[i]
		if f == nil {
			continue
		}
		if n -= len(f.bytes()); n < 0 && some {
			return i
		}
		some = true
	}
	return len(q.frames)
}

// oldest returns when the first message was created, or the zero Time. A replacement keeps the
// place of the message that it replaces, but not its time.
func (q *sendQueue) oldest() time.Time {
	for _, f := range q.frames[q.head:] {
		if f != nil && !f.At.IsZero() {
			return f.At
		}
	}
	return time.Time{}
}
