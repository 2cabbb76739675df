//go:build !js

package client

import (
	"time"

	"github.com/penstock-go/penstock/errors"
)

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
	if l.certain > 0 && l.level >= l.cost && !at.Before(l.at) {
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
	l.cost, l.capacity = max(1, number(detail(e, "observed"))), max(1, number(detail(e, "limit")))
	if reason, ok := detail(e, "reason").(string); ok && reason != "" {
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
