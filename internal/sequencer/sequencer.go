package sequencer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A Sequencer receives the publications of one topic on one node, with gaps and duplicates, and
// hands them to the node's subscribers once and in order. It finds gaps by offset and fills them from
// the store, and compares its position with the store when the topic is idle and after every
// interruption. What the store no longer holds is reported as lost, unless it may be on its way to this
// node: delivery does not depend on how much the store retains while nothing fails.
//
// The Reader of the node reads the store for it.
type Sequencer struct {
	reader    *Reader
	topic     string
	retention broker.Retention
	sink      Sink

	closed context.Context //nolint:containedctx // canceled by Close
	close  context.CancelFunc

	mu       sync.Mutex
	attached bool            // last is known
	last     broker.Position // of the publication that was handed over last
	ended    string          // the epoch before last.Epoch, whose publications are dropped
	since    uint64          // the offset of the store when last became known
	arrived  broker.Position // the highest that the broker has passed on since it has called Following
	reading  bool            // the Reader has it
	again    bool            // the Reader must read it once more
	more     bool            // publications follow those that were read

	// When something has happened last, and after which time the Reader compares the topic with the store; 0
	// is never.
	idleSince time.Time
	idleTime  time.Duration

	// See recent.go.
	recent      recent
	recentTimer *time.Timer

	// See buffer.go.
	buffer   map[uint64]broker.Publication
	buffered int // bytes, with overhead
	missing  missing
	grace    *time.Timer

	listeners []listener
	changed   chan struct{} // closed when something has changed; nil if no subscriber waits for that

	attaching []attachment // see WhenAttached
	forgetAt  int          // the number of attachments at which those that are not wanted are forgotten

	// The number of reads that have begun, and the last one that has reached the current position
	// of the store.
	begun, compared uint64
}

// ErrClosed ends a Join when the Sequencer is closed.
var ErrClosed = &errors.Error{Code: errors.Unavailable, Message: "the topic has no subscribers on this node any more"}

// A Sink receives what a Sequencer hands over, under its lock: its functions must not block and must
// not call the Sequencer.
type Sink struct {
	Deliver func(broker.Publication)
	Lost    func(Loss)
}

// A listener receives what a Sequencer hands over to its Sink, after that and under the same lock.
type listener interface {
	deliverLocked(p broker.Publication)
	loseLocked(l Loss)
}

func (s *Sequencer) listen(l listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, l)
}

func (s *Sequencer) unlisten(l listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = slices.DeleteFunc(s.listeners, func(other listener) bool { return other == l })
}

// A Loss reports a discontinuity. Publications with offsets from From to To, if there are any, are
// not delivered.
type Loss struct {
	From, To uint64

	// Epoch is the ended epoch if the store has begun a new one. Publications of it with higher
	// offsets than EndedAt, if there were any, are lost, even if they were delivered.
	Epoch   string
	EndedAt uint64

	// Reset is true if the extent is unknown: the subscribers must load their state again.
	Reset    bool
	Position broker.Position // at which delivery continues
}

// Messages returns the number of messages that are lost, or 0 if it is unknown.
func (l Loss) Messages() int {
	if l.endsEpoch() {
		return 0
	}
	return int(l.To - l.From + 1)
}

func (l Loss) endsEpoch() bool { return l.Reset || l.Epoch != "" }

// Limits of a Sequencer.
const (
	pageSize     = 256
	maxReceived  = 1024             // publications that a subscriber receives before it is activated
	minIdleCheck = 10 * time.Second // after a publication; half of it if other topics are compared
	maxIdleCheck = 2 * time.Minute  // later, if nothing has been published
)

// New follows a topic on the node of a Reader. The caller must call Close.
func New(reader *Reader, topic string, r broker.Retention, sink Sink) *Sequencer {
	s := &Sequencer{reader: reader, topic: topic, retention: r, sink: sink}
	s.closed, s.close = context.WithCancel(context.Background())
	reader.register(s)
	s.reader.histories.Follow(topic)
	return s
}

// Close ends the delivery.
func (s *Sequencer) Close() {
	s.close()
	s.reader.unregister(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reader.histories.Unfollow(s.topic)
	for _, timer := range []*time.Timer{s.grace, s.recentTimer} {
		if timer != nil {
			timer.Stop()
		}
	}
	s.dropBuffer()
	s.dropRecent()
}

// Following must be called when the store confirms the subscription, for the first time or after an
// interruption.
func (s *Sequencer) Following() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrived = broker.Position{}
	s.read()
}

// Publish handles a publication that the broker passes on, in the order of offsets: those before it that
// have not arrived yet do not arrive any more, until the broker calls Following.
func (s *Sequencer) Publish(p broker.Publication) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		return
	}
	if p.Position.Epoch != s.arrived.Epoch || p.Position.Offset > s.arrived.Offset {
		s.arrived = p.Position
	}
	if s.handOver(p) {
		return
	}
	s.keep(p)
	if s.attached && (!s.reading || p.Position.Epoch != s.last.Epoch) {
		s.read()
	}
}

// Stored handles a publication that this node has just stored. The broker passes it on, too: calls of
// Stored may be in any order, and need not be made. It reports whether the publication waits for others
// that precede it.
func (s *Sequencer) Stored(p broker.Publication) (waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() || s.handOver(p) || s.buffered >= maxBufferedBytes/2 {
		return false
	}
	s.keep(p)
	return true
}

// handOver delivers a publication if it is the next one, with those that have waited for it. It reports
// false if the publication must wait.
func (s *Sequencer) handOver(p broker.Publication) bool {
	switch {
	case !s.attached:
		return false
	case s.isOld(p.Position):
	case p.Position == s.next():
		s.deliver(p)
		s.drain()
	default:
		return false
	}
	return true
}

// isOld reports whether a position has been passed.
func (s *Sequencer) isOld(at broker.Position) bool {
	return at.Epoch == s.ended || at.Epoch == s.last.Epoch && at.Offset <= s.last.Offset
}

// next returns the position of the publication that follows the last one.
func (s *Sequencer) next() broker.Position {
	return broker.Position{Epoch: s.last.Epoch, Offset: s.last.Offset + 1}
}

// deliver hands a publication over.
func (s *Sequencer) deliver(p broker.Publication) {
	s.last.Offset = p.Position.Offset // the epoch of a stored publication may be the ended one
	s.sink.Deliver(p)
	s.unbuffer(p.Position.Offset)
	s.continueRecent(p)
	for _, l := range s.listeners {
		l.deliverLocked(p)
	}
	if s.missing.to > 0 && s.last.Offset >= s.missing.to {
		s.endMissing()
	}
	s.notify()
	s.checkWhenIdle(minIdleCheck)
}

// Position returns the position of the publication that was handed over last, and whether it is known.
func (s *Sequencer) Position() (last broker.Position, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.attached
}

func setTimer(timer **time.Timer, d time.Duration, f func()) {
	if *timer == nil {
		*timer = time.AfterFunc(d, f)
	} else {
		(*timer).Reset(d)
	}
}

func (s *Sequencer) isClosed() bool { return s.closed.Err() != nil }

// isBehind reports whether the broker has passed on more than was handed over.
func (s *Sequencer) isBehind() bool {
	return s.arrived.Epoch == s.last.Epoch && s.arrived.Offset > s.last.Offset
}

// notify wakes the subscribers that wait for a change.
func (s *Sequencer) notify() {
	s.callAttachingLocked()
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// sleep waits before the next attempt, or until ctx is done or the Sequencer is closed.
func (s *Sequencer) sleep(ctx context.Context, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-s.closed.Done():
	}
}

// apply hands over a page that begins after the last publication. It reports whether another page is
// needed; if none is, and this was complete, all that the store had has been handed over or is lost.
func (s *Sequencer) apply(page broker.Page) (more, complete bool) {
	top := page.Position.Offset
	switch {
	case !s.attached:
		s.attach(page.Position)
		s.drain()
		more = s.last.Offset < top
		return more, !more
	case page.Position.Epoch != s.last.Epoch:
		more = s.changeEpoch(page)
		return more, !more
	}
	for i, p := range page.Publications {
		if !s.advance(p.Position.Offset - 1) {
			for _, later := range page.Publications[i:] {
				s.keep(later)
			}
			s.awaitMissing(top)
			return false, false
		}
		if p.Position.Offset > s.last.Offset { // its epoch may be the ended one
			s.deliver(p)
		}
	}
	if len(page.Publications) == pageSize {
		more = s.last.Offset < top
		return more, !more
	}
	if !s.advance(top) {
		s.awaitMissing(top)
		return false, false
	}
	return false, true
}

// changeEpoch continues in a new epoch: without a gap if the store knows where the last one ended.
func (s *Sequencer) changeEpoch(page broker.Page) (more bool) {
	old := s.last
	s.ended, s.since, s.missing = old.Epoch, 0, missing{}
	s.dropRecent()
	if page.Previous.Epoch != old.Epoch {
		s.last = page.Position
		s.sinkLost(Loss{Reset: true})
		return false
	}
	s.last = broker.Position{Epoch: page.Position.Epoch, Offset: min(old.Offset, page.Previous.Offset)}
	s.sinkLost(Loss{Epoch: old.Epoch, EndedAt: page.Previous.Offset})
	return true // read again: offsets up to old.Offset may have been used again
}

// lose continues after a loss, and reports it. What was published while this node began to follow the
// topic is no loss.
func (s *Sequencer) lose(l Loss) {
	s.last.Offset = l.To
	s.dropRecent()
	if l.To > s.since {
		s.sinkLost(l)
	}
}

func (s *Sequencer) sinkLost(l Loss) {
	l.Position = s.last
	s.sink.Lost(l)
	for _, other := range s.listeners {
		other.loseLocked(l)
	}
}
