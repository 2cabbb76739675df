package sequencer

import (
	"bytes"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// This file has what a Sequencer cannot hand over yet: publications that have arrived before others, which
// it buffers, and those that are neither stored nor buffered, which may be on their way.

// Bounds of what waits.
const (
	maxBufferedBytes = 4 << 20 // of a topic; each publication counts with bufferedOverhead
	bufferedOverhead = 256
	lossGrace        = time.Second // without progress, before what is neither stored nor buffered is lost
)

// keep buffers a publication. If there are too many, all are dropped, and read from the store instead.
func (s *Sequencer) keep(p broker.Publication) {
	if s.buffered >= maxBufferedBytes {
		s.dropBuffer()
		s.again = true
		return
	}
	s.unbuffer(p.Position.Offset)
	if s.buffer == nil {
		s.buffer = map[uint64]broker.Publication{}
	}
	p.Packet = bytes.Clone(p.Packet) // it is valid only during the call
	s.buffer[p.Position.Offset] = p
	s.buffered += len(p.Packet) + bufferedOverhead
}

func (s *Sequencer) unbuffer(offset uint64) {
	if p, ok := s.buffer[offset]; ok {
		s.buffered -= len(p.Packet) + bufferedOverhead
		delete(s.buffer, offset)
	}
}

func (s *Sequencer) dropBuffer() { s.buffer, s.buffered = nil, 0 }

// dropOtherEpochs drops what is not of the current epoch.
func (s *Sequencer) dropOtherEpochs() {
	for offset, p := range s.buffer {
		if p.Position.Epoch != s.last.Epoch {
			s.unbuffer(offset)
		}
	}
}

// isBuffered reports whether the publication with an offset is buffered.
func (s *Sequencer) isBuffered(offset uint64) bool {
	p, ok := s.buffer[offset]
	return ok && p.Position.Epoch == s.last.Epoch
}

// drain delivers buffered publications that follow the last one.
func (s *Sequencer) drain() {
	for s.isBuffered(s.last.Offset + 1) {
		s.deliver(s.buffer[s.last.Offset+1])
	}
}

// advance hands over what is buffered up to an offset, and reports what lies between as lost: it is not
// stored. It reports false if some of that may be on its way to this node.
func (s *Sequencer) advance(to uint64) bool {
	for s.drain(); s.last.Offset < to; s.drain() {
		from := s.last.Offset + 1
		end := to
		for offset := range s.buffer {
			if offset > from && s.isBuffered(offset) {
				end = min(end, offset-1)
			}
		}
		if !s.missing.expired {
			if s.arrived.Epoch != s.last.Epoch || s.arrived.Offset < from {
				return false
			}
			end = min(end, s.arrived.Offset)
		}
		s.lose(Loss{From: from, To: end})
	}
	return true
}

// missing describes publications that are neither stored nor buffered, and have not been passed by others.
type missing struct {
	to            uint64 // the highest offset; 0 if none are missing
	last, arrived broker.Position
	expired       bool // nothing has arrived for lossGrace
}

// awaitMissing gives publications up to an offset time to arrive.
func (s *Sequencer) awaitMissing(to uint64) {
	s.missing = missing{to: to, last: s.last, arrived: s.arrived}
	setTimer(&s.grace, lossGrace, s.checkMissing)
}

// checkMissing reads the store for the last time if nothing has arrived meanwhile.
func (s *Sequencer) checkMissing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := &s.missing; {
	case m.to == 0 || s.isClosed():
	case m.last != s.last || m.arrived != s.arrived:
		s.awaitMissing(m.to)
	default:
		m.expired = true
		s.read()
	}
}

// endMissing is called when all that was missing has been handed over. Joins may wait for a comparison
// with the store.
func (s *Sequencer) endMissing() {
	s.missing = missing{}
	if s.changed != nil {
		s.read()
	}
}
