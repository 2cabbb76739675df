package wirecheck

import (
	"fmt"

	"github.com/penstock-go/penstock/internal/protocol"
)

// A topic is where the client is in the publications of a topic with positions.
type topic struct {
	epoch  string // "" if a handler has subscribed the client without a notice
	offset uint64 // everything up to here has arrived, or was reported
	acts   int    // Conn.acts at the last publication
	phase  *phase // while the current state arrives
}

// A phase is the time in which publications of the current state arrive. They precede or have the offset at.
type phase struct {
	left int // of the first ones
	more bool
	at   uint64
}

// subscribed handles the answer for one topic, or a notice. asked is nil for what the client has not asked for.
func (c *Conn) subscribed(s protocol.Subscribed, asked *protocol.Subscribe) {
	if s.Position == nil {
		if asked == nil || asked.Epoch != "" || asked.Positions || asked.State {
			delete(c.topics, s.Topic)
		}
		return // otherwise, the client continues to receive positions if it has received them
	}
	t := &topic{epoch: s.Epoch, offset: s.Offset, acts: c.acts}
	c.topics[s.Topic] = t
	r := s.Recovery
	if asked != nil && asked.Epoch != "" && r != nil {
		c.recovered(s, asked)
	}
	if r != nil && r.State != nil {
		t.phase = &phase{left: *r.State, more: r.More, at: s.Offset}
		t.endPhase()
	}
}

// recovered compares the position of an answer with that which the client has presented.
func (c *Conn) recovered(s protocol.Subscribed, asked *protocol.Subscribe) {
	expected := asked.Offset
	switch {
	case !s.Recovered:
		c.loss(s.Topic, "$ws:subscribed without recovery: the history does not reach back to offset %d", asked.Offset)
		return
	case s.Ended != nil && s.Ended.Offset < asked.Offset:
		c.loss(s.Topic, "$ws:subscribed with the end of the epoch at offset %d: the publications up to %d are lost", s.Ended.Offset, asked.Offset)
		expected = s.Ended.Offset
	}
	if s.Offset != expected {
		c.violation("topic %q is recovered from offset %d, but the client has everything up to %d; the offsets between them are missing, or arrive twice",
			s.Topic, s.Offset, expected)
	}
}

// resumed handles the answer to $ws:resume.
func (c *Conn) resumed(r protocol.Resumed, asked []protocol.Subscribe) {
	c.session = true
	byTopic := map[string]*protocol.Subscribe{}
	for i := range asked {
		byTopic[asked[i].Topic] = &asked[i]
	}
	for _, s := range r.Topics {
		if s.Error == nil {
			c.subscribed(s.Subscribed, byTopic[s.Topic])
		}
	}
}

// published checks that the offset of a publication follows that of the one before.
func (c *Conn) published(e envelope) {
	if e.Meta.Topic == nil || e.Meta.Offset == 0 || c.resuming != "" {
		return
	}
	name, offset := *e.Meta.Topic, e.Meta.Offset
	t := c.topics[name]
	if t == nil { // subscribed by a handler, of which only clients with a session are notified
		c.topics[name] = &topic{offset: offset, acts: c.acts}
		return
	}
	acts := t.acts
	t.acts = c.acts
	if p := t.phase; p != nil && offset <= p.at {
		p.left = max(0, p.left-1)
		t.endPhase()
		return
	}
	if offset == t.offset+1 {
		t.offset = offset
		return
	}
	if name == "" && offset <= t.offset { // messages to the user precede the answer to $ws:resume, and follow it again
		return
	}
	if c.isCertain(acts) {
		c.violation("%s of topic %q has the offset %d after %d; offsets grow by one, unless a notice explains the gap", e.Type, name, offset, t.offset)
	}
	t.offset = offset
}

// isCertain reports whether no handler can have subscribed the client again since its last publication: only clients with
// a session are notified of that.
func (c *Conn) isCertain(acts int) bool { return c.session || acts == c.acts }

func (t *topic) endPhase() {
	if t.phase.left == 0 && !t.phase.more {
		t.phase = nil
	}
}

// moved handles a notice that moves the position.
func (c *Conn) moved(m protocol.Moved) {
	t := c.topics[m.Topic]
	if t == nil {
		return
	}
	from, certain := t.offset, c.isCertain(t.acts)
	if certain && t.epoch != "" && m.Epoch != t.epoch && m.Ended == nil && !m.Reset {
		c.violation("$ws:position of topic %q has the epoch %s after %s; a notice that begins an epoch says where the previous one has ended", m.Topic, m.Epoch, t.epoch)
	}
	t.offset, t.epoch, t.acts = m.Offset, m.Epoch, c.acts
	switch {
	case m.Reset:
		c.loss(m.Topic, "$ws:position with a reset after offset %d: what is lost is unknown", from)
		return
	case m.Ended != nil && m.Ended.Offset < from:
		c.loss(m.Topic, "$ws:position with the end of the epoch at offset %d: the publications up to %d are lost", m.Ended.Offset, from)
	}
	if m.Ended != nil {
		from = min(from, m.Ended.Offset)
	}
	switch {
	case m.Lost != nil:
		c.loss(m.Topic, "$ws:position with lost publications: the offsets %d to %d", m.Lost.From, m.Lost.To)
		if certain && m.Lost.From != from+1 || m.Lost.To != m.Offset {
			c.violation("$ws:position of topic %q moves from %d to %d, and reports %d to %d as lost; the notice must explain the whole gap", m.Topic, from, m.Offset, m.Lost.From, m.Lost.To)
		}
	case !certain:
	case m.Ended == nil && m.Offset != from+1:
		c.violation("$ws:position of topic %q moves from %d to %d without a loss; it may skip one publication, which is the client's own", m.Topic, from, m.Offset)
	case m.Ended != nil && m.Offset != from:
		c.violation("$ws:position of topic %q moves from %d to %d at the end of an epoch without a loss", m.Topic, from, m.Offset)
	}
}

func (c *Conn) loss(topic, format string, args ...any) {
	c.observer.Loss(topic, fmt.Sprintf(format, args...))
}
