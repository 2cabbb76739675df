package redis

import (
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// sequences number the packets of each channel. A channel that is unused for forgetAfter may be
// removed; its next sequence has another epoch.
type sequences struct {
	channels map[string]*sequence
	sweepAt  time.Time
}

type sequence struct {
	epoch uint32 // random
	next  uint64
	used  time.Time
}

const forgetAfter = time.Minute

// assign sets the epoch and the number of a message.
func (s *sequences) assign(channel string, m *nodeMessage) {
	now := time.Now()
	c := s.channels[channel]
	if c == nil {
		s.sweep(now)
		c = &sequence{epoch: rand.Uint32()}
		s.channels[channel] = c
	}
	c.used = now
	m.epoch, m.number = c.epoch, c.next
	c.next++
}

func (s *sequences) sweep(now time.Time) {
	if now.Before(s.sweepAt) {
		return
	}
	s.sweepAt = now.Add(forgetAfter)
	for channel, c := range s.channels {
		if now.Sub(c.used) > forgetAfter {
			delete(s.channels, channel)
		}
	}
}

// A sequenceTracker detects losses and duplicates in the numbers of one node on one channel.
type sequenceTracker struct {
	epoch uint32
	next  uint64
	first uint64 // the first number whose loss would be detected
}

// track returns how many packets are missing before m, and whether m is new.
func (t *sequenceTracker) track(m *nodeMessage) (missing int, isNew bool) {
	if m.epoch != t.epoch {
		// An epoch begins at 0. This node was subscribed then, so it misses what is before m.
		*t = sequenceTracker{epoch: m.epoch}
	}
	if m.number < t.next {
		return 0, false // go-redis has sent it twice
	}
	missing = int(m.number - t.next)
	t.next = m.number + 1
	return missing, true
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
