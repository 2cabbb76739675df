//go:build !js

package client

import (
	"slices"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
)

// A pacer decides when a message may be sent, so that the server's rate limits admit it, and sends
// rejected ones again. A message is certain if the model of every bucket that it takes tokens from
// holds its cost. Certain messages follow each other at once; behind a message that is not certain,
// nothing that takes tokens from the same buckets is sent until its outcome is known, because what the
// server admits behind a rejected message would overtake it. The lock of the client guards it.
//
// The model of a bucket that the server announces follows docs/protocol.md, section 7. A type that no
// announced bucket limits may have a limit that is not announced: the pacer learns its rate from
// rejections.
type pacer struct {
	enabled bool
	buckets []*bucket
	learned map[string]*learnedLimit // by type
	lanes   map[string][]*lane       // by type: one of its own, and those of its buckets
	search  uint64                   // number of the last search for a message to be sent

	sentMessages map[string]*sentMessage // without a confirmation, by ID
	roundTrip    time.Duration           // the shortest one
}

// A lane contains the messages that must not overtake each other: those of one type, or those that take
// tokens from one bucket.
type lane struct {
	awaiting string // the ID of the message whose outcome is awaited
	held     uint64 // the last search in which one of its messages had to wait
}

// A sentMessage awaits its confirmation.
type sentMessage struct {
	message *outgoing
	conn    *conn
	at      time.Time
}

// A charge is what a message takes from buckets.
type charge []bucketCost

type bucketCost struct {
	bucket *bucket
	cost   int64 // in units of the bucket
}

// open begins a connection, for which all that was sent is the greeting. Messages of an earlier one may
// be without a confirmation.
func (p *pacer) open(w *protocol.Welcome, at time.Time) {
	p.buckets, p.lanes = nil, map[string][]*lane{}
	for _, l := range p.learned {
		l.reconnected()
	}
	if w == nil || !p.enabled {
		return
	}
	for _, l := range w.Limits {
		for _, announced := range l.Buckets {
			b := newBucket(l, announced.Costs, announced.Keep, at)
			if l.Scope == "connection" {
				b.level = b.capacity
				if cost := announced.Costs[protocol.TypeHello]; cost != nil {
					b.level -= *cost * b.unit
				}
			}
			p.buckets = append(p.buckets, b)
		}
	}
}

// closed ends a connection. It returns the events that have no confirmation, in the order in which they were sent.
func (p *pacer) closed(cn *conn) (unconfirmed []*outgoing) {
	for id, sent := range p.sentMessages {
		if sent.conn != cn {
			continue
		}
		p.release(id, sent)
		if sent.message.call == nil {
			unconfirmed = append(unconfirmed, sent.message)
		}
	}
	slices.SortFunc(unconfirmed, byNumber)
	return unconfirmed
}

// unconfirmed reports whether an event of a connection has no confirmation.
func (p *pacer) unconfirmed(cn *conn) bool {
	for _, sent := range p.sentMessages {
		if sent.conn == cn && sent.message.call == nil {
			return true
		}
	}
	return false
}

func (p *pacer) lanesOf(typ string) []*lane {
	lanes, known := p.lanes[typ]
	if known {
		return lanes
	}
	lanes = []*lane{{}}
	for _, b := range p.buckets {
		if b.charges(typ) {
			lanes = append(lanes, &b.lane)
		}
	}
	p.lanes[typ] = lanes
	return lanes
}

// wait returns how long a message must wait before it is sent. If it must, those behind it in its lanes
// must, too, in the same search.
func (p *pacer) wait(m *outgoing, at time.Time) (wait time.Duration) {
	wait = m.notBefore.Sub(at)
	if !p.enabled {
		return wait
	}
	lanes := p.lanesOf(m.typ)
	for _, l := range lanes {
		if l.awaiting != "" || l.held == p.search {
			wait = forever
		}
	}
	for _, b := range p.buckets {
		wait = max(wait, b.wait(m.typ, at))
	}
	if l := p.learned[m.typ]; l != nil {
		wait = max(wait, l.wait(at))
	}
	if wait > 0 {
		for _, l := range lanes {
			l.held = p.search
		}
	}
	return wait
}

// sent takes the cost of a message, and awaits its confirmation.
func (p *pacer) sent(m *outgoing, cn *conn, at time.Time) {
	if m.call == nil || p.enabled {
		p.sentMessages[m.id] = &sentMessage{m, cn, at}
	}
	if !p.enabled {
		return
	}
	lanes := p.lanesOf(m.typ)
	certain := len(lanes) > 1 || p.learned[m.typ] != nil
	m.charge = m.charge[:0]
	for _, b := range p.buckets {
		cost, known := b.take(m.typ, at)
		certain = certain && known
		if cost > 0 {
			m.charge = append(m.charge, bucketCost{b, cost})
		}
	}
	if l := p.learned[m.typ]; l != nil {
		certain = l.take(at) && certain
	}
	if certain {
		return
	}
	for _, l := range lanes {
		l.awaiting = m.id
	}
}

// sentControl takes the cost of a message of the protocol, which is not delayed.
func (p *pacer) sentControl(m *outgoing, at time.Time) {
	for _, b := range p.buckets {
		cost, _ := b.take(m.typ, at)
		b.unconfirmed -= cost // an answer is not awaited
	}
}

// confirmed notes that the server has admitted a message.
func (p *pacer) confirmed(id string, at time.Time) {
	sent := p.sentMessages[id]
	if sent == nil {
		return
	}
	if trip := at.Sub(sent.at); p.roundTrip == 0 || trip < p.roundTrip {
		p.roundTrip = trip
	}
	sent.message.charge.confirm(at)
	if l := p.learned[sent.message.typ]; l != nil {
		l.admitted()
	}
	p.release(id, sent)
}

// release forgets a message whose outcome is known, and permits those behind it.
func (p *pacer) release(id string, sent *sentMessage) {
	delete(p.sentMessages, id)
	for _, l := range p.lanes[sent.message.typ] {
		if l.awaiting == id {
			l.awaiting = ""
		}
	}
}

// refused forgets a message that the server has rejected, and returns it, or nil if it is not known.
func (p *pacer) refused(id string, at time.Time) *outgoing {
	sent := p.sentMessages[id]
	if sent == nil {
		return nil
	}
	sent.message.charge.confirm(at)
	p.release(id, sent)
	return sent.message
}

// confirm notes that the messages have arrived. What has returned until then was bounded while they had not.
func (c charge) confirm(at time.Time) {
	for _, taken := range c {
		taken.bucket.advance(at)
		taken.bucket.unconfirmed -= taken.cost
	}
}

// repeat reports whether a message that a rate limit has rejected must be sent again. Until then it
// waits, and those behind it in its lanes.
func (p *pacer) repeat(m *outgoing, e *errors.Error, sentAt int64, at time.Time) bool {
	if !p.enabled || detail(e, "kind") != "rate" || e.RetryAfter <= 0 {
		return false
	}
	m.notBefore = at.Add(e.RetryAfter)
	modeled := false
	for _, b := range p.buckets {
		if b.charges(m.typ) && b.capacity == int64(number(detail(e, "limit")))*b.unit {
			b.correct(m.typ, m.notBefore, at)
			modeled = true
		}
	}
	if modeled {
		return true
	}
	l := p.learned[m.typ]
	if l == nil {
		l = &learnedLimit{}
		p.learned[m.typ] = l
	}
	l.rejected(e, time.UnixMilli(sentAt).Add(e.RetryAfter), m.notBefore, p.roundTrip)
	return true
}

// NextAllowedAt returns when a message of a type could be sent without being delayed, as far as the
// client knows the server's limits: a form can show it. It returns the zero time if that is now, or
// if Options.Pacing is not set.
func (c *Client) NextAllowedAt(typ string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.pacer.enabled {
		return time.Time{}
	}
	at := time.Now()
	c.pacer.search++
	wait := c.pacer.wait(&outgoing{typ: typ}, at)
	if wait >= forever { // an outcome is awaited
		wait = 0
	}
	if l := c.pacer.learned[typ]; l != nil { // a rejection counts even if its message does not wait any more
		wait = max(wait, l.at.Sub(at))
	}
	for _, m := range c.queue.messages {
		if c.pacer.shareLane(m.typ, typ) {
			wait = max(wait, m.notBefore.Sub(at))
		}
	}
	if wait <= 0 {
		return time.Time{}
	}
	return at.Add(wait)
}

// shareLane reports whether messages of two types must not overtake each other.
func (p *pacer) shareLane(a, b string) bool {
	others := p.lanesOf(b)
	return slices.ContainsFunc(p.lanesOf(a), func(l *lane) bool { return slices.Contains(others, l) })
}
