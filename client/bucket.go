//go:build !js

package client

import (
	"time"

	"github.com/penstock-go/penstock/internal/protocol"
)

// A bucket is the model of one bucket that the server has announced, in exact integers: a token has
// as many units as the bucket needs microseconds to refill Refill tokens, so Refill units return
// every microsecond.
type bucket struct {
	lane lane

	unit     int64 // units of a token
	refill   int64 // units per microsecond
	capacity int64 // units
	costs    map[string]*int64
	keep     map[string]int64

	level       int64 // units that the server's bucket holds at least
	unconfirmed int64 // units of messages that are not known to have arrived
	at          time.Time

	// After a rejection, the model is in doubt: other connections take tokens from the bucket, too. That many
	// messages are then sent one at a time.
	doubt     int
	lastDoubt int
}

// After the first rejection, 64 messages are sent one at a time, and twice as many after each further one.
const (
	minDoubt = 64
	maxDoubt = 4096
)

func newBucket(l *protocol.Limit, costs map[string]*int64, keep map[string]int64, at time.Time) *bucket {
	unit := max(1, l.RefillMs) * 1000
	return &bucket{unit: unit, refill: l.Refill, capacity: l.Capacity * unit, costs: costs, keep: keep, at: at}
}

// advance adds what has returned. While messages are not known to have arrived, the server's bucket may
// still be full, and lose tokens: so the level stays below the capacity less their costs.
func (b *bucket) advance(at time.Time) {
	elapsed := at.Sub(b.at).Microseconds()
	if elapsed <= 0 {
		return
	}
	b.at = b.at.Add(time.Duration(elapsed) * time.Microsecond)
	limit := b.capacity - b.unconfirmed
	if elapsed > (limit-b.level)/max(1, b.refill)+1 {
		b.level = max(b.level, limit)
		return
	}
	b.level = max(b.level, min(limit, b.level+elapsed*b.refill))
}

// need returns the units that the bucket must hold to admit a message of a type, and those that it takes.
// known is false if the cost depends on the message.
func (b *bucket) need(typ string) (need, cost int64, known bool) {
	tokens, listed := b.costs[typ]
	switch {
	case !listed:
		return 0, 0, true
	case tokens == nil:
		return 0, 0, false
	case *tokens == 0:
		return 0, 0, true
	}
	cost = *tokens * b.unit
	return cost + b.keep[typ]*b.unit, cost, true
}

// wait returns how long it takes until the bucket admits a message of a type.
func (b *bucket) wait(typ string, at time.Time) time.Duration {
	need, _, _ := b.need(typ)
	b.advance(at)
	switch {
	case need <= b.level, need > b.capacity: // the server rejects it
		return 0
	case need > b.capacity-b.unconfirmed:
		return forever // until a confirmation arrives
	}
	missing := need - b.level
	micros := (missing + b.refill - 1) / max(1, b.refill)
	return b.at.Add(time.Duration(micros) * time.Microsecond).Sub(at)
}

func (b *bucket) take(typ string, at time.Time) (cost int64, known bool) {
	b.advance(at)
	need, cost, known := b.need(typ)
	if need > b.capacity {
		return 0, true // it is rejected for good
	}
	b.level -= cost
	b.unconfirmed += cost
	if cost > 0 && b.doubt > 0 {
		b.doubt--
		known = false
	}
	return cost, known
}

// charges reports whether messages of a type take tokens from the bucket.
func (b *bucket) charges(typ string) bool {
	tokens, listed := b.costs[typ]
	return listed && (tokens == nil || *tokens > 0)
}

// correct corrects the model after a rejection: the bucket will hold the cost of a type at a time, and
// not before.
func (b *bucket) correct(typ string, ready, at time.Time) {
	need, cost, _ := b.need(typ)
	b.advance(at)
	level := int64(0) // a penalty, which says nothing about the tokens
	if micros := ready.Sub(at).Microseconds(); micros <= need/max(1, b.refill) {
		level = need - micros*b.refill
	}
	b.level = min(b.level+cost, level)
	b.lastDoubt = min(max(minDoubt, 2*b.lastDoubt), maxDoubt)
	b.doubt = b.lastDoubt
}
