package sequencer

import (
	"time"

	"github.com/penstock-go/penstock/broker"
)

// This file is what the Reader of the node does with a Sequencer.

// read makes the Reader read the topic, or read it once more.
func (s *Sequencer) read() {
	if s.isClosed() {
		return
	}
	s.again = true
	if !s.reading {
		s.reading = true
		s.reader.add(s)
	}
}

// beginComparison is read for the Reader itself. It returns whether it must read the topic.
func (s *Sequencer) beginComparison() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading || s.isClosed() {
		return false
	}
	s.again, s.reading = true, true
	return true
}

// checkWhenIdle makes the Reader compare the topic with the store if nothing happens for about d: the end of
// what was published may have been lost.
func (s *Sequencer) checkWhenIdle(d time.Duration) { s.idleTime, s.idleSince = d, time.Now() }

// idleFor returns how much of the time has passed after which the topic is compared; 0 if it need not be.
func (s *Sequencer) idleFor(now time.Time) (part float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idleTime == 0 || s.reading {
		return 0
	}
	return float64(now.Sub(s.idleSince)) / float64(s.idleTime)
}

// A sequencerRead is a read of the store for a Sequencer.
type sequencerRead struct {
	s      *Sequencer
	number uint64
	query  broker.TopicQuery // without a limit, only the position is read
}

// beginRead returns what has to be read, or nil if that is nothing.
func (s *Sequencer) beginRead() *sequencerRead {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		s.reading = false
		return nil
	}
	s.again = false
	s.begun++
	read := &sequencerRead{s, s.begun, broker.TopicQuery{Topic: s.topic, Retention: s.retention, After: s.last.Offset, Epoch: s.last.Epoch}}
	if s.attached && (s.more || s.isBehind() || len(s.buffer) > 0) {
		read.query.Limit = pageSize
	}
	return read
}

// lacks reports whether the Sequencer lacks publications before a position. They follow query.After then.
func (r *sequencerRead) lacks(page broker.Page) bool {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.attached || page.Position.Epoch != s.last.Epoch || page.Position.Offset <= s.last.Offset {
		return false
	}
	r.query.After, r.query.Epoch = s.last.Offset, s.last.Epoch
	return true
}

// endRead handles a page and reports whether the topic must be read again.
func (s *Sequencer) endRead(r *sequencerRead, page broker.Page) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		s.reading = false
		return false
	}
	if page.Position.Epoch == r.query.Epoch && page.Position.Offset < r.query.After {
		s.goBack(page.Position)
	}
	more, complete := s.apply(page)
	s.more = more
	s.missing.expired = false
	s.drain()
	if complete {
		s.compared = r.number
	}
	if complete && !s.again {
		s.dropOtherEpochs()
	}
	s.reading = more || s.again || s.isBehind()
	s.checkWhenIdle(min(max(2*s.idleTime, minIdleCheck), maxIdleCheck))
	s.notify()
	return s.reading
}

// goBack continues at a position of the store below one that this node had before it asked: the store has
// lost publications without beginning an epoch, and uses their offsets again.
func (s *Sequencer) goBack(to broker.Position) {
	s.last, s.since, s.missing, s.arrived = to, 0, missing{}, broker.Position{}
	s.dropRecent()
	s.dropBuffer()
	s.sinkLost(Loss{Reset: true})
}
