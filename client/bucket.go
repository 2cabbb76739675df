//go:build !js

package client

import (
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A bucket is the model of one bucket that the server has announced, in exact integers: a token has
// as many units as the bucket needs microseconds to refill Refill tokens, so Refill units return
// every microsecond.
type bucket struct {
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

func newBucket(l *limit, costs map[string]*int64, keep map[string]int64, at time.Time) *bucket {
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

// take takes the cost of a message.
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

// empty corrects the model after a rejection: the bucket holds the cost of a type at a time, and not
// more. It reports whether the type takes tokens from the bucket.
func (b *bucket) empty(typ string, at time.Time) bool {
	need, cost, known := b.need(typ)
	if cost == 0 && known {
		return false
	}
	b.at, b.level = at, min(b.level+cost, need)
	b.lastDoubt = min(max(minDoubt, 2*b.lastDoubt), maxDoubt)
	b.doubt = b.lastDoubt
	return true
}

// A learnedLimit is the model of a bucket that the server has not announced, from the rejections of one
// type. It doubles the number of messages that are certain with each rejection, up to 512.
type learnedLimit struct {
	cost, capacity float64
	rate           float64 // tokens per second, a lower estimate; 0 if unknown
	level          float64
	unconfirmed    float64
	at             time.Time

	first   time.Time // when the first rejected message could be admitted, by the server's clock
	total   float64   // tokens taken since then
	certain int       // messages that are certain until the next rejection
	maximum int       // the same after the last one
}

const maxCertain = 512

// advance adds what has returned.
func (l *learnedLimit) advance(at time.Time) {
	if elapsed := at.Sub(l.at); elapsed > 0 {
		l.level = min(max(l.level, l.capacity-l.unconfirmed), l.level+l.rate*elapsed.Seconds())
		l.at = at
	}
}

// wait returns how long it takes until a message is certain. It is 0 if the next message must not be
// certain, to learn more.
func (l *learnedLimit) wait(at time.Time) time.Duration {
	l.advance(at)
	switch {
	case l.certain == 0 || l.rate == 0 || l.level >= l.cost:
		return 0
	case l.cost > l.capacity-l.unconfirmed:
		return forever // until a confirmation arrives
	}
	return time.Duration((l.cost-l.level)/l.rate*float64(time.Second)) + time.Microsecond
}

// take takes the cost of a message, and reports whether it is certain.
func (l *learnedLimit) take(at time.Time) bool {
	l.advance(at)
	l.unconfirmed += l.cost
	if l.certain > 0 && l.level >= l.cost {
		l.certain--
		l.level -= l.cost
		return true
	}
	l.level = max(0, l.level-l.cost)
	return false
}

// reconnected forgets what the lost connection has not confirmed. The next message is not certain.
func (l *learnedLimit) reconnected() { l.unconfirmed, l.certain = 0, 0 }

func (l *learnedLimit) admitted() {
	l.total += l.cost
	l.unconfirmed = max(0, l.unconfirmed-l.cost)
}

// rejected learns from a rejection: at ready, by the server's clock, the message is admitted; at until,
// by the client's, it is sent again.
func (l *learnedLimit) rejected(e *errors.Error, ready, until time.Time, roundTrip time.Duration) {
	l.cost, l.capacity = max(1, number(e.Details["observed"])), max(1, number(e.Details["limit"]))
	if reason, ok := e.Details["reason"].(string); ok && reason != "" {
		*l = learnedLimit{cost: l.cost, capacity: l.capacity, at: until} // a penalty says nothing about the rate
		return
	}
	if l.first.IsZero() {
		l.first, l.total, l.maximum = ready, 0, 1
	} else {
		l.rate = l.total / (ready.Sub(l.first) + 3*time.Millisecond).Seconds()
		l.maximum = min(2*l.maximum, maxCertain)
	}
	l.certain, l.unconfirmed = l.maximum, 0
	l.level = l.cost + min(l.capacity-l.cost, 0.9*l.rate*roundTrip.Seconds())
	l.at = until
}

func number(v any) float64 {
	n, _ := v.(float64)
	return n
}

// NextAllowedAt returns when a message of a type could be sent without being delayed, as far as the
// client knows the server's limits: a form can show it. It returns the zero time if that is now, or
// if Options.Pacing is not set.
func (c *Client) NextAllowedAt(typ string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := time.Now()
	wait := c.pacer.wait(&outgoing{typ: typ}, at)
	if wait <= 0 || wait >= forever {
		return time.Time{}
	}
	return at.Add(wait)
}
