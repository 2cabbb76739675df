package rawclient

import (
	"encoding/json"
	"time"
)

// A topic is what the client knows of a subscription.
type topic struct {
	name    string
	wanted  *SubscribeOptions // what the client has asked for; nil: the server has subscribed it, or has not
	on      bool              // subscribed on the present connection
	ended   bool              // the end is confirmed: nothing may follow
	acts    int               // conn.acts at the end: only later messages can have begun another subscription
	pending int               // requests without an answer
	pos     *Position         // up to which everything was received; with a phase, see presentable
	phase   *phase
	members map[string]Member // nil without presence
}

// A phase is the time in which a subscription receives the current state.
type phase struct {
	left uint64 // of the publications that come first
	more bool   // $ws:state ends the phase
	at   uint64 // the offset of the answer
	last uint64 // the offset of the last publication of the first ones
}

func (t *topic) presentable() *Position {
	if t.phase != nil || t.pos == nil {
		return nil
	}
	pos := *t.pos
	return &pos
}

func (c *Client) topic(name string) *topic {
	t := c.topics[name]
	if t == nil {
		t = &topic{name: name}
		c.topics[name] = t
	}
	return t
}

// request returns the payload of $ws:subscribe. On the connection that has the subscription, the client
// presents no position, because it misses nothing.
func (t *topic) request() subscription {
	s := subscription{Topic: t.name}
	if t.wanted != nil {
		s.Presence, s.Positions, s.State = t.wanted.Presence, t.wanted.Positions, t.wanted.State
	}
	if pos := t.presentable(); pos != nil && !t.on {
		s.Epoch, s.Offset, s.Positions = pos.Epoch, &pos.Offset, false
	}
	return s
}

func (k *conn) subscribe(t *topic) string {
	t.pending++
	request := t.request()
	return k.send("$ws:subscribe", request, nil, &call{credits: -1, topic: t, request: []subscription{request}})
}

// delivered handles an event of the application.
func (k *conn) delivered(e envelope) {
	d := Delivery{Conn: k.n, Topic: e.meta.Topic, Type: e.kind, Payload: e.payload, At: time.Now()}
	if e.meta.Topic != nil && !k.publication(e, &d) {
		return
	}
	k.c.deliveries = append(k.c.deliveries, d)
}

// publication checks the topic and the position of a publication, and reports whether it counts: one
// with a position that precedes the answer to $ws:resume follows it again.
func (k *conn) publication(e envelope, d *Delivery) bool {
	name, offset := *e.meta.Topic, e.meta.Offset
	if k.greet == notGreeted && offset == 0 {
		k.fail("%s has a topic before the greeting", e.kind)
	}
	if offset > 0 && (k != k.c.cur || k.isResuming()) {
		if k.resuming != "" && name != "" && k.greet != greeted && k.c.topic(name).pending == 0 {
			k.fail("a publication of %q has a position before the greeting is answered", name)
		}
		return false
	}
	if k != k.c.cur {
		return true
	}
	t := k.c.topics[name]
	if t != nil && t.ended && t.pending == 0 && k.c.token == "" && k.acts > t.acts {
		t.ended = false // a handler has subscribed the client again, which has no session
	}
	if t == nil || !t.on && t.pending == 0 && !t.ended {
		if k.c.token != "" && k.greet == greeted && !k.isResuming() && name != "" { // the notice of messages to the user may follow them
			k.fail("a publication of %q, to which the client is not subscribed", name)
		}
		t = k.c.topic(name)
		t.on = true // by a handler, of which only clients with a session learn
	}
	if t.ended && t.pending == 0 {
		k.fail("a publication of %q, whose subscription has ended", name)
		return true
	}
	k.position(t, offset, d)
	return true
}

// position checks that the offset follows the position of the client.
func (k *conn) position(t *topic, offset uint64, d *Delivery) {
	if offset == 0 && k.c.token == "" && k.acts > 0 {
		t.pos, t.phase = nil, nil // a handler has ended the subscription and begun another, without a notice
	}
	switch {
	case t.pos == nil && (offset == 0 || t.pending > 0 || t.name == ""):
		d.Position.Offset = offset
		return
	case t.pos == nil:
		k.fail("a publication of %q has the offset %d, and the client has no position", t.name, offset)
		return
	case offset == 0:
		k.fail("a publication of %q has no position", t.name)
		return
	}
	d.Position = Position{t.pos.Epoch, offset}
	if p := t.phase; p != nil && offset <= p.at {
		d.State = true
		if p.left > 0 {
			if offset <= p.last {
				k.fail("the state of %q does not ascend: %d follows %d", t.name, offset, p.last)
			}
			p.left--
			p.last = offset
		}
		t.endPhase()
		return
	}
	if t.phase != nil && t.phase.left > 0 {
		k.fail("a publication of %q precedes %d of its state", t.name, t.phase.left)
	}
	if offset != t.pos.Offset+1 {
		k.fail("a publication of %q has the offset %d, the position is %d", t.name, offset, t.pos.Offset)
	}
	t.pos.Offset = offset
}

// endPhase ends the phase when the first publications have arrived and no others follow.
func (t *topic) endPhase() {
	if t.phase.left == 0 && !t.phase.more {
		t.phase = nil
	}
}

// subscribed handles the answer for one topic, to $ws:subscribe or $ws:resume, or a notification. asked
// is nil for one that the client has not asked for.
func (k *conn) subscribed(t *topic, s subscribed, asked *subscription) {
	t.on, t.ended = true, false
	if (s.Epoch == "") != (s.Offset == nil) {
		k.fail("an answer for %q has half a position", t.name)
	}
	if s.State != nil && (asked == nil || !asked.State) || s.Members != nil && (asked == nil || !asked.Presence) {
		k.fail("an answer for %q has a state or members that the client has not asked for", t.name)
	}
	k.members(t, s, asked)
	if s.Epoch == "" || s.Offset == nil {
		if asked != nil && asked.Epoch == "" && !asked.Positions && !asked.State {
			return // the client goes on receiving positions if it has received them
		}
		t.pos, t.phase = nil, nil
		return
	}
	recovered := s.Recovered != nil && *s.Recovered
	if asked != nil {
		k.recovered(t, s, asked, recovered)
	}
	kept := asked != nil && asked.Epoch != "" && recovered
	t.pos, t.phase = &Position{s.Epoch, *s.Offset}, nil
	if asked != nil && asked.State && !kept && s.State == nil {
		k.fail("the answer for %q has no state", t.name)
	}
	if s.State != nil {
		if kept {
			k.fail("the answer for %q has a state, and is recovered", t.name)
		}
		t.phase = &phase{left: *s.State, more: s.More, at: *s.Offset}
		t.endPhase()
	}
}

// recovered checks the position of an answer against what the client has.
func (k *conn) recovered(t *topic, s subscribed, asked *subscription, recovered bool) {
	if s.Recovered == nil {
		k.fail("the answer for %q has a position without recovered", t.name)
	}
	if asked.Epoch == "" || !recovered || asked.Offset == nil {
		return
	}
	had := Position{asked.Epoch, *asked.Offset}
	if s.Ended == nil && (s.Epoch != had.Epoch || *s.Offset != had.Offset) {
		k.fail("%q is recovered from %d of %s, the client had %d of %s", t.name, *s.Offset, s.Epoch, had.Offset, had.Epoch)
	}
	if s.Ended != nil && (s.Ended.Epoch != had.Epoch || *s.Offset != min(had.Offset, s.Ended.Offset)) {
		k.fail("%q is recovered from %d, its epoch has ended at %d, and the client had %d", t.name, *s.Offset, s.Ended.Offset, had.Offset)
	}
}

// members replaces the members that the client knows.
func (k *conn) members(t *topic, s subscribed, asked *subscription) {
	if asked == nil {
		return
	}
	t.members = nil
	if s.Members == nil {
		return
	}
	t.members = map[string]Member{}
	k.joined(t, *s.Members)
	if len(*s.Members) > 256 {
		k.fail("a message has %d members of %q", len(*s.Members), t.name)
	}
}

func (k *conn) joined(t *topic, members []Member) {
	for _, m := range members {
		if _, ok := t.members[m.ConnID]; ok || m.ConnID == "" {
			k.fail("the member %q joins %q twice, or has no connId", m.ConnID, t.name)
		}
		t.members[m.ConnID] = m
	}
}

// presence handles $ws:presence.
func (k *conn) presence(e envelope) {
	var p struct {
		Topic  *string   `json:"topic"`
		Joined *[]Member `json:"joined"`
		Left   *[]Member `json:"left"`
	}
	if json.Unmarshal(e.payload, &p) != nil || p.Topic == nil || p.Joined == nil || p.Left == nil {
		k.fail("$ws:presence is malformed: %s", e.payload)
		return
	}
	k.notice(e, *p.Topic)
	t := k.c.topics[*p.Topic]
	if k != k.c.cur {
		return
	}
	if t == nil || t.members == nil {
		k.fail("$ws:presence of %q, for which the client has no members", *p.Topic)
		return
	}
	for _, m := range *p.Left {
		if _, ok := t.members[m.ConnID]; !ok {
			k.fail("the member %q leaves %q and has not joined", m.ConnID, t.name)
		}
		delete(t.members, m.ConnID)
	}
	k.joined(t, *p.Joined)
	if n := len(*p.Left) + len(*p.Joined); n > 256 || n == 0 {
		k.fail("$ws:presence of %q has %d members", t.name, n)
	}
}

// moved handles $ws:position.
func (k *conn) moved(e envelope) {
	var m moved
	if json.Unmarshal(e.payload, &m) != nil || m.Topic == nil || m.Epoch == "" || m.Offset == nil {
		k.fail("$ws:position is malformed: %s", e.payload)
		return
	}
	if k != k.c.cur || k.isResuming() {
		return // the next answer has a position
	}
	k.notice(e, *m.Topic)
	t := k.c.topics[*m.Topic]
	if t == nil || t.pos == nil {
		k.fail("$ws:position of %q, of which the client has no position", *m.Topic)
		return
	}
	k.checkMoved(t, m)
	wrong := m.Lost != nil || m.Reset || m.Ended != nil && m.Ended.Offset < t.pos.Offset
	t.pos = &Position{m.Epoch, *m.Offset}
	if wrong && t.wanted != nil && t.wanted.State && t.pending == 0 {
		t.pos, t.phase = nil, nil
		k.subscribe(t)
	}
}

// checkMoved checks that the notice explains the way from the old position to the new one.
func (k *conn) checkMoved(t *topic, m moved) {
	from := t.pos.Offset
	switch {
	case m.Reset:
		return
	case m.Ended != nil:
		if m.Ended.Epoch != t.pos.Epoch || m.Epoch == t.pos.Epoch {
			k.fail("$ws:position of %q ends the epoch %s, the client is in %s", t.name, m.Ended.Epoch, t.pos.Epoch)
		}
		from = min(from, m.Ended.Offset)
	case m.Epoch != t.pos.Epoch:
		k.fail("$ws:position of %q has the epoch %s, the client is in %s", t.name, m.Epoch, t.pos.Epoch)
	}
	switch {
	case m.Lost != nil && (m.Lost.From != from+1 || m.Lost.To != *m.Offset || m.Lost.To < m.Lost.From):
		k.fail("$ws:position of %q loses %d to %d and moves from %d to %d", t.name, m.Lost.From, m.Lost.To, from, *m.Offset)
	case m.Lost == nil && m.Ended != nil && *m.Offset != from:
		k.fail("$ws:position of %q moves from %d to %d without a reason", t.name, from, *m.Offset)
	case m.Lost == nil && m.Ended == nil && *m.Offset != from+1:
		k.fail("$ws:position of %q moves from %d to %d for a publication of the client", t.name, from, *m.Offset)
	}
}
