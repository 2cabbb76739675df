//go:build !js

package client

import (
	"log/slog"
	"slices"
	"time"

	"github.com/penstock-go/penstock/internal/protocol"
)

// receiveMessage handles a message of the application: a publication, or another message.
func (c *Client) receiveMessage(cn *conn, e *envelope, bytes int) {
	r := &Received{Type: e.Type, Topic: e.Meta.Topic, At: time.UnixMilli(e.Meta.Timestamp), payload: e.content()}
	c.mu.Lock()
	readers, known := c.readersLocked(cn, r, e.Meta.Offset)
	reached := Position{} // when the handlers have returned, of those that have the whole state
	complete := readers
	if slices.ContainsFunc(readers, (*Subscription).lacksStateLocked) {
		complete = slices.DeleteFunc(slices.Clone(readers), (*Subscription).lacksStateLocked)
	}
	if len(complete) > 0 {
		reached = complete[0].received
	}
	c.mu.Unlock()
	if !known {
		c.dispatch(cn, bytes, func() { c.handle(r) })
		return
	}
	if len(readers) == 0 {
		return
	}
	c.dispatch(cn, bytes, func() {
		for _, s := range readers {
			if s == s.feed.all {
				c.handle(r)
			} else {
				s.handle(r)
			}
			if reached.Epoch != "" && slices.Contains(complete, s) {
				s.advance(reached)
			}
		}
	})
}

// readersLocked returns what receives a publication, and sets its position. known is false if only the functions
// registered with On do, because the client has no subscription to its topic: a handler of the server has
// subscribed it.
func (c *Client) readersLocked(cn *conn, r *Received, offset uint64) (readers []*Subscription, known bool) {
	f := c.topics[r.Topic]
	switch {
	case r.Topic == userTopic && offset == 0:
		return nil, false
	case r.Topic == userTopic && (f == nil || !f.joined):
		// While the client moves to another connection, the server sends them on both; and a node that is behind
		// the one before sends again what that has sent.
		cn.toUser.add(offset)
		r.Position.Offset = offset
		return nil, cn.other != nil && cn.other.toUser.contain(offset)
	case f != nil && offset == 0 && cn == c.topicConn && (c.subscribing || f.all.received.Epoch == ""):
		// It is not in a history. Before the session has moved, it may be, if a handler has subscribed the connection already.
		return f.readersLocked(), true
	case f == nil, !f.joined:
		r.Position.Offset = offset
		return nil, false
	case cn != c.topicConn:
		return nil, true
	case !f.live:
		return nil, true // it comes again after the answer
	case f.stateLeft > 0 && offset <= f.stateAt:
		return f.acceptStateLocked(r, offset), true
	}
	missing := false
	for _, s := range f.readersLocked() {
		switch at := s.received.Offset; {
		case offset <= at:
		case offset > at+1:
			missing = true
		default:
			s.received.Offset = offset
			r.Position = s.received
			readers = append(readers, s)
		}
	}
	if missing {
		c.events.Add(func() {
			c.log(slog.LevelWarn, "publications are missing; the client asks for them", slog.String("topic", f.topic))
		})
		f.askLocked()
	}
	return readers, true
}

// acceptStateLocked returns what receives a publication of the state.
func (f *feed) acceptStateLocked(r *Received, offset uint64) (readers []*Subscription) {
	f.stateLeft--
	r.State = true
	for _, s := range f.readersLocked() {
		if s.takesState {
			r.Position = Position{s.received.Epoch, offset}
			readers = append(readers, s)
		}
	}
	if f.stateLeft == 0 {
		f.completeStateLocked()
	}
	return readers
}

// completeStateLocked notes that the whole state was received.
func (f *feed) completeStateLocked() {
	f.stateLeft = 0
	for _, s := range f.readersLocked() {
		s.takesState = false
	}
	f.askAgainLocked()
}

// lacksStateLocked reports whether the subscription receives a state that is not complete. It has
// no position until then.
func (s *Subscription) lacksStateLocked() bool { return s.takesState }

// receiveTopicMessage handles a message of the protocol about a topic.
func (c *Client) receiveTopicMessage(cn *conn, e *envelope) {
	var err error
	switch e.Type {
	case protocol.TypePosition:
		err = decoded(e, func(m *protocol.Moved) { c.receiveMoved(cn, m) })
	case protocol.TypeState:
		err = decoded(e, func(m *protocol.StateComplete) { c.receiveStateEnd(cn, m.Topic) })
	case protocol.TypePresence:
		err = decoded(e, func(m *protocol.PresenceChanged) { c.receivePresence(cn, m) })
	case protocol.TypeSubscribed:
		err = decoded(e, c.receiveSubscribed)
	case protocol.TypeUnsubscribed:
		err = decoded(e, c.receiveUnsubscribed)
	}
	if err != nil {
		c.log(slog.LevelWarn, "the server has sent a message that cannot be decoded", slog.String("type", e.Type), slog.Any("error", err))
	}
}

// decoded calls handle with the payload.
func decoded[M any](e *envelope, handle func(*M)) error {
	var m M
	if err := e.decode(&m); err != nil {
		return err
	}
	handle(&m)
	return nil
}

// receiveMoved handles a position that moves without a publication.
func (c *Client) receiveMoved(cn *conn, m *protocol.Moved) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.topics[m.Topic]
	if f == nil || !f.live || cn != c.topicConn {
		return
	}
	position := Position{m.Epoch, m.Offset}
	goesOn := m.Ended == nil && !m.Reset // the epoch
	l := Loss{Ended: (*Position)(m.Ended), Position: position}
	if m.Lost != nil {
		l.From, l.To = m.Lost.From, m.Lost.To
	}
	needsState := false
	for _, s := range f.readersLocked() {
		if goesOn && s.received.Epoch == position.Epoch && s.received.Offset >= position.Offset {
			continue // others begin at an older position
		}
		s.received = position
		if goesOn && m.Lost == nil {
			if !s.takesState {
				c.events.Add(func() { s.advance(position) })
			}
			continue
		}
		s.loseLocked(l)
		if s.opts.State { // even if only the epoch has ended: OnLoss promises that the state follows
			s.received, s.needsState, needsState = Position{}, true, true
		}
	}
	if needsState { // the answer has the state
		f.all.received = Position{}
		f.askLocked()
	}
}

// receiveStateEnd handles the end of a state that has followed in parts.
func (c *Client) receiveStateEnd(cn *conn, topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.topics[topic]
	if f == nil || !f.live || cn != c.topicConn {
		return
	}
	for _, s := range f.readersLocked() {
		if reached := s.received; s.takesState {
			c.events.Add(func() { s.advance(reached) })
		}
	}
	f.completeStateLocked()
}

func (c *Client) receivePresence(cn *conn, m *protocol.PresenceChanged) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.topics[m.Topic]
	if f == nil || cn != c.topicConn {
		return
	}
	for _, s := range f.subs {
		if onPresence := s.opts.OnPresence; onPresence != nil && s.hasMembers {
			c.events.Add(func() {
				s.call("OnPresence", func() { onPresence(publicMembers(m.Joined), publicMembers(m.Left), false) })
			})
		}
	}
}

// receiveSubscribed handles a subscription that a handler of the server has made.
func (c *Client) receiveSubscribed(m *protocol.Subscribed) {
	c.mu.Lock()
	f := c.feedOfLocked(m.Topic)
	skip := f.asking != nil // the answer has the position, too
	c.mu.Unlock()
	if !skip {
		c.join(f, m)
	}
}

// receiveUnsubscribed handles the end of a subscription by the server. With an error, the state of the last
// answer is not complete; a request that follows that answer begins again.
func (c *Client) receiveUnsubscribed(m *protocol.Unsubscribed) {
	c.mu.Lock()
	f := c.topics[m.Topic]
	if f == nil || m.Error != nil && f.asking != nil {
		c.mu.Unlock()
		return
	}
	f.pauseLocked()
	byServer := len(f.subs) == 0
	c.mu.Unlock()
	if m.Error == nil {
		f.end(ErrUnsubscribed)
	} else if err := errorOf(m.Error); byServer {
		f.end(err)
	} else {
		c.subscriptionFailed(f, err, false)
	}
}
