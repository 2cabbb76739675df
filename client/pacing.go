//go:build !js

package client

import (
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A pacer decides when a message may be sent, so that the server's rate limits admit it, and sends
// rejected ones again. A message is certain if the model of every bucket that it takes tokens from
// holds its cost. Certain messages follow each other at once; a message that is not certain is sent
// last, and nothing behind it until its outcome is known, because what the server admits behind a
// rejected message would overtake it. The lock of the client guards it.
//
// If the server announces its limits, the model follows docs/protocol.md, section 7. Otherwise the
// pacer learns the rate of a type from its rejections.
type pacer struct {
	enabled     bool
	announced   bool
	concurrency int  // calls without an answer that the server permits; 0 if unknown
	crowded     bool // the server permits no other call before one of this client is answered
	buckets     []*bucket
	learned     map[string]*learnedLimit // by type

	sentMessages map[string]*sentMessage // without a confirmation, by ID
	openCalls    map[string]struct{}
	uncertain    string        // the ID of the message whose outcome is awaited
	blockedUntil time.Time     // by a rejection
	roundTrip    time.Duration // the shortest one
}

// A sentMessage awaits its confirmation.
type sentMessage struct {
	message *outgoing
	at      time.Time
}

// A charge is what a message takes from buckets.
type charge []bucketCost

type bucketCost struct {
	bucket *bucket
	cost   int64 // in units of the bucket
}

// open begins a connection, for which all that was sent is the greeting.
func (p *pacer) open(w *welcome, at time.Time) {
	p.sentMessages, p.openCalls, p.uncertain = map[string]*sentMessage{}, map[string]struct{}{}, ""
	p.announced, p.concurrency, p.buckets, p.crowded = false, 0, nil, false
	for _, l := range p.learned {
		l.reconnected()
	}
	if p.learned == nil {
		p.learned = map[string]*learnedLimit{}
	}
	if w == nil || !p.enabled {
		return
	}
	p.concurrency, p.announced = w.Concurrency, w.Limits != nil
	for i := range w.Limits {
		l := &w.Limits[i]
		for _, announced := range l.Buckets {
			b := newBucket(l, announced.Costs, announced.Keep, at)
			if l.Scope == "connection" {
				b.level = b.capacity
				for _, typ := range []string{"$ws:hello"} {
					if cost := announced.Costs[typ]; cost != nil {
						b.level -= *cost * b.unit
					}
				}
			}
			p.buckets = append(p.buckets, b)
		}
	}
}

// closed ends a connection. It returns the events that have no confirmation.
func (p *pacer) closed() (unconfirmed []*outgoing) {
	for _, sent := range p.sentMessages {
		if sent.message != nil && sent.message.call == nil {
			unconfirmed = append(unconfirmed, sent.message)
		}
	}
	p.sentMessages, p.openCalls, p.uncertain = nil, nil, ""
	return unconfirmed
}

// wait returns how long a message must wait before it is sent.
func (p *pacer) wait(m *outgoing, at time.Time) time.Duration {
	switch {
	case !p.enabled:
		return 0
	case p.uncertain != "":
		return forever
	case m.call != nil && (p.crowded || p.concurrency > 0 && len(p.openCalls) >= p.concurrency):
		return forever
	}
	wait := p.blockedUntil.Sub(at)
	for _, b := range p.buckets {
		wait = max(wait, b.wait(m.typ, at))
	}
	if l := p.learned[m.typ]; l != nil {
		wait = max(wait, l.wait(at))
	}
	return wait
}

// sent takes the cost of a message.
func (p *pacer) sent(m *outgoing, at time.Time) {
	if !p.enabled {
		return
	}
	certain := p.announced
	m.charge = m.charge[:0]
	for _, b := range p.buckets {
		cost, known := b.take(m.typ, at)
		certain = certain && known
		if cost > 0 {
			m.charge = append(m.charge, bucketCost{b, cost})
		}
	}
	if l := p.learned[m.typ]; l != nil {
		certain = l.take(at)
	}
	if !certain {
		p.uncertain = m.id
	}
	p.sentMessages[m.id] = &sentMessage{m, at}
	if m.call != nil {
		p.openCalls[m.id] = struct{}{}
	}
}

// sentControl takes the cost of a message of the protocol, which is not delayed.
func (p *pacer) sentControl(m *outgoing, at time.Time) {
	if !p.enabled {
		return
	}
	for _, b := range p.buckets {
		cost, _ := b.take(m.typ, at)
		b.unconfirmed -= cost // an answer is not awaited
	}
}

// confirmed notes that the server has admitted a message. It reports whether a message that had to
// wait may be sent.
func (p *pacer) confirmed(id string, at time.Time) (wake bool) {
	sent := p.sentMessages[id]
	if sent == nil {
		return false
	}
	if trip := at.Sub(sent.at); p.roundTrip == 0 || trip < p.roundTrip {
		p.roundTrip = trip
	}
	sent.message.charge.confirm(at)
	if l := p.learned[sent.message.typ]; l != nil {
		l.admitted()
	}
	delete(p.sentMessages, id)
	p.release(id)
	return true
}

// release permits messages behind the one whose outcome is known.
func (p *pacer) release(id string) {
	if p.uncertain == id {
		p.uncertain = ""
	}
}

// settled notes that a call has its answer.
func (p *pacer) settled(id string) {
	if _, open := p.openCalls[id]; open {
		delete(p.openCalls, id)
		p.crowded = false
	}
}

// crowdedWait is how long a call waits that the calls of other connections hold back.
const crowdedWait = 500 * time.Millisecond

// confirm notes that the messages have arrived. What has returned until then was bounded while they had not.
func (c charge) confirm(at time.Time) {
	for _, taken := range c {
		taken.bucket.advance(at)
		taken.bucket.unconfirmed -= taken.cost
	}
}

// rejected handles the rejection of a message. It returns the message, or nil if it is not known,
// and whether it must be sent again.
func (p *pacer) rejected(id string, err error, sentAt int64, at time.Time) (m *outgoing, again bool) {
	sent := p.sentMessages[id]
	if !p.enabled || sent == nil {
		return nil, false
	}
	m = sent.message
	delete(p.sentMessages, id)
	p.settled(id)
	p.release(id)
	m.charge.confirm(at)
	e, ok := errors.AsType[*errors.Error](err)
	if !ok || e.Code != errors.ResourceExhausted || !e.Retryable() {
		return m, false
	}
	kind, _ := e.Details["kind"].(string)
	switch {
	case kind == "in_flight":
		if p.crowded = len(p.openCalls) > 0; !p.crowded {
			p.blockedUntil = at.Add(max(crowdedWait, e.RetryAfter))
		}
		return m, true
	case kind != "rate" || e.RetryAfter <= 0:
		return m, false
	}
	p.blockedUntil = at.Add(e.RetryAfter)
	modeled := false
	for _, b := range p.buckets {
		modeled = b.empty(m.typ, p.blockedUntil) || modeled
	}
	if modeled {
		return m, true
	}
	l := p.learned[m.typ]
	if l == nil {
		l = &learnedLimit{}
		p.learned[m.typ] = l
	}
	l.rejected(e, time.UnixMilli(sentAt).Add(e.RetryAfter), p.blockedUntil, p.roundTrip)
	return m, true
}
