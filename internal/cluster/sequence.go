package cluster

import (
	"encoding/binary"
	"time"
)

// sequences number the packets of each channel. The sequence of a channel that is unused for
// forgetAfter ends with a message that shows receivers its last number; the next sequence of the
// channel has a greater epoch.
type sequences struct {
	channels map[string]*sequence
	epoch    uint32 // of the last sequence
	beat     uint64 // the last heartbeat
}

type sequence struct {
	channel Channel
	epoch   uint32
	next    uint64
	beat    uint64 // when the last number was assigned
	used    time.Time
}

// forgetAfter is how long a sequence is kept that is not used.
const forgetAfter = time.Minute

// maxEnds bounds the sequences that end at the same time, each with a message.
const maxEnds = 2048

// assign sets the epoch and the number of a message.
func (s *sequences) assign(channel Channel, m *nodeMessage) {
	c := s.channels[channel.Name]
	if c == nil {
		s.epoch++
		c = &sequence{channel: channel, epoch: s.epoch, beat: s.beat}
		s.channels[channel.Name] = c
	}
	m.epoch, m.number, m.previousBeat = c.epoch, c.next, c.beat
	c.next++
	c.beat, c.used = s.beat, time.Now()
}

// removeUnused removes unused sequences, and calls end with the message that ends each.
func (s *sequences) removeUnused(end func(Channel, *nodeMessage)) {
	ended := 0
	for name, c := range s.channels {
		if time.Since(c.used) <= forgetAfter {
			continue
		}
		if ended++; ended > maxEnds {
			return
		}
		delete(s.channels, name)
		end(c.channel, &nodeMessage{kind: kindEnd, epoch: c.epoch, number: c.next, previousBeat: c.beat})
	}
}

// A sequenceTracker detects losses and duplicates in the numbers of one node on one channel.
type sequenceTracker struct {
	epoch  uint32
	next   uint64
	first  uint64 // the first number whose loss would be detected
	ended  bool   // the last message was kindEnd
	behind bool   // the subscription was interrupted after the last message
	early  bool   // the subscription was not confirmed at the last message: what follows may not be due
}

// A finding is what a message reveals about those before it.
type finding struct {
	isNew   bool // the message was not received before
	missing int  // messages
	unknown bool // it is unknown how many packets are missing, but some may be
}

// isNew reports whether a message follows the last one.
func (t *sequenceTracker) isNew(m *nodeMessage) bool {
	return int32(m.epoch-t.epoch) > 0 || m.epoch == t.epoch && m.number >= t.next
}

// track records a message.
func (t *sequenceTracker) track(m *nodeMessage) (f finding) {
	if m.epoch != t.epoch {
		if int32(m.epoch-t.epoch) < 0 {
			return f // an old sequence
		}
		// An epoch begins at 0, and this node was subscribed then. The end of the previous one
		// was received, or else it is unknown what followed.
		f.unknown = !t.ended
		*t = sequenceTracker{epoch: m.epoch, behind: t.behind}
	}
	if m.number < t.next {
		return f // the engine has delivered it twice
	}
	f.isNew = true
	f.missing = int(m.number - t.next)
	f.unknown = f.unknown || f.missing > 0 && t.behind || t.lossBefore(m)
	t.next = m.number + 1
	t.behind = false
	if t.ended = m.kind == kindEnd; t.ended {
		t.next = m.number
	}
	return f
}

// lossBefore reports whether m is a gap message about a loss before the first tracked number.
// It returns true once for each loss.
func (t *sequenceTracker) lossBefore(m *nodeMessage) bool {
	if m.kind != kindGap {
		return false
	}
	lost, n := binary.Uvarint(m.packet)
	if n <= 0 || lost >= t.first {
		return false
	}
	t.first = lost
	return true
}
