package history

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A Sequencer receives the publications of one topic on one node, with gaps and duplicates, and
// hands them to the node's subscribers once and in order. It finds gaps by offset and fills them from
// the store, and compares its position with the store when the topic is idle and after every
// interruption. What the store no longer holds is reported as lost.
//
// There is at most one goroutine per Sequencer, which exists only while it reads the store.
type Sequencer struct {
	session   broker.HistorySession
	topic     string
	retention broker.Retention
	sink      Sink

	startReading func()          // starts readLoop on a goroutine of its own
	closed       <-chan struct{} // closed by Close
	close        context.CancelFunc

	mu       sync.Mutex
	attached bool            // last is known
	last     broker.Position // of the publication that was handed over last
	ended    string          // the epoch before last.Epoch, whose publications are dropped
	buffer   map[uint64]broker.Publication
	reading  bool // the goroutine exists
	again    bool // it must read once more
	grace    *time.Timer
	idle     *time.Timer
	idleTime time.Duration // of the timer, on average
	joining  []*joining
	changed  chan struct{} // closed when something has changed; nil if no subscriber waits for that

	attaching []func(broker.Position) // called when last is known

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

// A Loss reports a discontinuity. Publications with offsets from From to To, if there are any, are
// not delivered.
type Loss struct {
	From, To uint64

	// Epoch is the ended epoch if the store has begun a new one. Publications of it with higher
	// offsets than EndedAt, if there were any, are lost, also if they were delivered.
	Epoch   string
	EndedAt uint64

	// Reset is true if the extent is unknown: the subscribers must load their state again.
	Reset    bool
	Position broker.Position // at which delivery continues
}

// Limits of a Sequencer.
const (
	pageSize     = 256
	maxBuffered  = 1024                  // publications that wait for a gap to be filled
	gapGrace     = 20 * time.Millisecond // publications may overtake each other on their way to this node
	minIdleCheck = 10 * time.Second      // after a publication, on average
	maxIdleCheck = 2 * time.Minute       // later, if nothing has been published
	minBackoff   = 50 * time.Millisecond
	maxBackoff   = 5 * time.Second
)

// NewSequencer follows a topic. The caller must call Close.
func NewSequencer(session broker.HistorySession, topic string, r broker.Retention, sink Sink) *Sequencer {
	s := &Sequencer{session: session, topic: topic, retention: r, sink: sink}
	ctx, cancel := context.WithCancel(context.Background())
	s.closed, s.close = ctx.Done(), cancel
	s.startReading = func() { go s.readLoop(ctx) }
	session.Follow(topic)
	return s
}

// Close ends the delivery.
func (s *Sequencer) Close() {
	s.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session.Unfollow(s.topic)
	for _, timer := range []*time.Timer{s.grace, s.idle} {
		if timer != nil {
			timer.Stop()
		}
	}
	s.buffer = nil
}

// Following must be called when the store confirms the subscription, for the first time or after an
// interruption.
func (s *Sequencer) Following() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read()
}

// Publish handles a publication from the broker, or one that this node has just stored.
func (s *Sequencer) Publish(p broker.Publication) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.isClosed():
	case !s.attached || s.reading:
		s.keep(p)
	case p.Position.Epoch == s.ended, p.Position.Epoch == s.last.Epoch && p.Position.Offset <= s.last.Offset:
	case p.Position == s.next():
		s.deliver(p)
		s.drain()
	case p.Position.Epoch != s.last.Epoch:
		s.keep(p)
		s.read()
	default:
		s.keep(p)
		s.setTimer(&s.grace, gapGrace, s.checkGap)
	}
}

// next returns the position of the publication that follows the last one.
func (s *Sequencer) next() broker.Position {
	return broker.Position{Epoch: s.last.Epoch, Offset: s.last.Offset + 1}
}

// deliver hands a publication over.
func (s *Sequencer) deliver(p broker.Publication) {
	s.last.Offset = p.Position.Offset // the epoch of a stored publication may be the ended one
	s.sink.Deliver(p)
	for _, j := range s.joining {
		j.add(p)
	}
	s.notify()
	s.checkWhenIdle(minIdleCheck)
}

// checkWhenIdle reads the store if nothing happens for about d.
func (s *Sequencer) checkWhenIdle(d time.Duration) {
	s.idleTime = d
	s.setTimer(&s.idle, d/2+rand.N(d), s.Following)
}

// Position returns the position of the publication that was handed over last, and whether it is known.
func (s *Sequencer) Position() (last broker.Position, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.attached
}

func (s *Sequencer) setTimer(timer **time.Timer, d time.Duration, f func()) {
	if *timer == nil {
		*timer = time.AfterFunc(d, f)
	} else {
		(*timer).Reset(d)
	}
}

// keep buffers a publication that cannot be delivered yet. If there are too many, all are dropped,
// and read from the store instead.
func (s *Sequencer) keep(p broker.Publication) {
	if len(s.buffer) >= maxBuffered {
		s.buffer = nil
		s.again = true
		return
	}
	if s.buffer == nil {
		s.buffer = map[uint64]broker.Publication{}
	}
	p.Packet = append([]byte(nil), p.Packet...) // it is valid only during the call
	s.buffer[p.Position.Offset] = p
}

// drain delivers buffered publications that follow the last one, and drops those that precede it. It
// reports whether others are left.
func (s *Sequencer) drain() (gap bool) {
	for {
		p, ok := s.buffer[s.last.Offset+1]
		if !ok || p.Position.Epoch != s.last.Epoch {
			break
		}
		delete(s.buffer, p.Position.Offset)
		s.deliver(p)
	}
	for offset, p := range s.buffer {
		if p.Position.Epoch == s.ended || p.Position.Epoch == s.last.Epoch && offset <= s.last.Offset {
			delete(s.buffer, offset)
		}
	}
	return len(s.buffer) > 0
}

// checkGap reads the store if a gap has not been closed meanwhile.
func (s *Sequencer) checkGap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.reading && s.attached && s.drain() {
		s.read()
	}
}

// read starts the goroutine that reads the store, or makes it read once more.
func (s *Sequencer) read() {
	if s.isClosed() {
		return
	}
	s.again = true
	if !s.reading {
		s.reading = true
		s.startReading()
	}
}

func (s *Sequencer) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

func (s *Sequencer) readLoop(ctx context.Context) {
	backoff := minBackoff
	for s.readOnce(ctx, &backoff) {
	}
}

// readOnce reads a page and reports whether another one is needed.
func (s *Sequencer) readOnce(ctx context.Context, backoff *time.Duration) bool {
	s.mu.Lock()
	s.again = false
	s.begun++
	number := s.begun
	after, limit := s.last.Offset, pageSize
	if !s.attached {
		after, limit = 0, 0 // only the position
	}
	s.mu.Unlock()
	page, err := s.session.Read(ctx, broker.Query{Topic: s.topic, Retention: s.retention, After: after, Limit: limit})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		s.reading = false
		return false
	case err != nil:
		s.wait(ctx, backoff)
		return true
	}
	*backoff = minBackoff
	more := s.apply(page)
	if !more {
		s.compared = number
		more = s.drain()
	}
	s.reading = more || s.again
	s.checkWhenIdle(min(max(2*s.idleTime, minIdleCheck), maxIdleCheck))
	s.notify()
	return s.reading
}

// notify wakes the subscribers that wait for a change.
func (s *Sequencer) notify() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// wait waits before the next attempt, with the lock released.
func (s *Sequencer) wait(ctx context.Context, backoff *time.Duration) {
	s.mu.Unlock()
	defer s.mu.Lock()
	s.sleep(ctx, backoff)
}

// sleep waits before the next attempt, or until ctx is done or the Sequencer is closed.
func (s *Sequencer) sleep(ctx context.Context, backoff *time.Duration) {
	timer := time.NewTimer(*backoff/2 + rand.N(*backoff))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-s.closed:
	}
	*backoff = min(2**backoff, maxBackoff)
}

// apply hands over a page that begins after the last publication. It reports whether another page is
// needed.
func (s *Sequencer) apply(page broker.Page) (more bool) {
	switch {
	case !s.attached:
		s.attach(page.Position)
		s.drain()
		return s.last.Offset < page.Position.Offset
	case page.Position.Epoch != s.last.Epoch:
		return s.changeEpoch(page)
	}
	for _, p := range page.Publications {
		if p.Position.Offset > s.last.Offset+1 {
			s.lose(Loss{From: s.last.Offset + 1, To: p.Position.Offset - 1}, p.Position.Offset-1)
		}
		s.deliver(p)
	}
	top := page.Position.Offset
	if len(page.Publications) == pageSize {
		return s.last.Offset < top
	}
	if s.last.Offset < top { // what is missing is no longer stored
		s.lose(Loss{From: s.last.Offset + 1, To: top}, top)
	}
	return false
}

// changeEpoch continues in a new epoch: without a gap if the store knows where the last one ended.
func (s *Sequencer) changeEpoch(page broker.Page) (more bool) {
	old := s.last
	s.ended = old.Epoch
	if page.Previous.Epoch != old.Epoch {
		s.last = page.Position
		s.sinkLost(Loss{Reset: true})
		return false
	}
	s.last = broker.Position{Epoch: page.Position.Epoch, Offset: min(old.Offset, page.Previous.Offset)}
	s.sinkLost(Loss{Epoch: old.Epoch, EndedAt: page.Previous.Offset})
	return true // read again: offsets up to old.Offset may have been used again
}

// lose reports a loss and continues after it.
func (s *Sequencer) lose(l Loss, continueAfter uint64) {
	s.last.Offset = continueAfter
	s.sinkLost(l)
}

func (s *Sequencer) sinkLost(l Loss) {
	l.Position = s.last
	s.sink.Lost(l)
	for _, j := range s.joining {
		j.lose(l)
	}
}

// Locked calls f while nothing is handed over: to remove a subscriber, for example.
func (s *Sequencer) Locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}
