package redis

import (
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// What travels between nodes: the sender's name, the kind, and for packets their place
// in what the sender has published on the channel.
type envelope struct {
	from   string
	kind   byte
	epoch  uint32 // of the numbers
	number uint64
	packet []byte
}

const (
	kindPacket = 1 + iota
	kindTick   // a number that tells how many came before it, with the first that was lost
	kindAlive
	kindGoodbye
)

func (e *envelope) append(b []byte) []byte {
	b = append(b, e.kind, byte(len(e.from)))
	b = append(b, e.from...)
	if e.kind == kindPacket || e.kind == kindTick {
		b = binary.BigEndian.AppendUint32(b, e.epoch)
		b = binary.AppendUvarint(b, e.number)
	}
	return append(b, e.packet...)
}

// open returns false for what is not an envelope.
func open(b []byte) (e envelope, ok bool) {
	if len(b) < 2 || len(b) < 2+int(b[1]) || b[0] < kindPacket || b[0] > kindGoodbye {
		return e, false
	}
	n := 2 + int(b[1])
	e.kind, e.from, b = b[0], string(b[2:n]), b[n:]
	if e.kind != kindPacket && e.kind != kindTick {
		return e, true
	}
	if len(b) < 4 {
		return e, false
	}
	e.epoch = binary.BigEndian.Uint32(b)
	number, size := binary.Uvarint(b[4:])
	if size <= 0 {
		return e, false
	}
	e.number, e.packet = number, b[4+size:]
	return e, true
}

// numbers count what goes out on each channel. A channel that was not used for a while
// is forgotten, and counts from a new epoch.
type numbers struct {
	channels map[string]*counter
	sweepAt  time.Time
}

type counter struct {
	epoch uint32
	next  uint64
	used  time.Time
}

const forgetAfter = time.Minute

func (n *numbers) stamp(channel string, e *envelope) {
	now := time.Now()
	c := n.channels[channel]
	if c == nil {
		n.sweep(now)
		c = &counter{epoch: rand.Uint32()}
		n.channels[channel] = c
	}
	c.used = now
	e.epoch, e.number = c.epoch, c.next
	c.next++
}

func (n *numbers) sweep(now time.Time) {
	if now.Before(n.sweepAt) {
		return
	}
	n.sweepAt = now.Add(forgetAfter)
	for channel, c := range n.channels {
		if now.Sub(c.used) > forgetAfter {
			delete(n.channels, channel)
		}
	}
}

// A follower checks one node's numbers on one channel.
type follower struct {
	epoch uint32
	next  uint64
	first uint64 // of the numbers that it has checked
}

// missedBefore reports whether e tells of a loss before the first number, once.
func (f *follower) missedBefore(e *envelope) bool {
	if e.kind != kindTick {
		return false
	}
	lost, n := binary.Uvarint(e.packet)
	if n <= 0 || lost >= f.first {
		return false
	}
	f.first = lost
	return true
}

// follow returns how many packets are missing before e, and whether e is new.
func (f *follower) follow(e *envelope) (missing int, isNew bool) {
	if e.epoch != f.epoch {
		*f = follower{epoch: e.epoch} // who follows would have heard its first packet
	}
	if e.number < f.next {
		return 0, false // the client has sent it twice
	}
	missing = int(e.number - f.next)
	f.next = e.number + 1
	return missing, true
}
