//go:build !js

package client

import (
	"log/slog"
	"time"
)

// receiveMessage handles a message of the application: a publication with a position, or another
// message.
func (c *Client) receiveMessage(cn *conn, e *envelope, bytes int) {
	r := &Received{Topic: e.Meta.Topic, At: time.UnixMilli(e.Meta.Timestamp), typ: e.Type, payload: e.Payload}
	if e.Meta.Topic == "" {
		c.dispatch(cn, bytes, func() { c.handle(r) })
		return
	}
	c.mu.Lock()
	s := c.topics[e.Meta.Topic]
	pass := s != nil && cn == c.topicConn && s.accept(r, e.Meta.Offset)
	var reached Position // when the handlers have returned
	if pass && s.stateLeft == 0 {
		reached = s.received // the position of a state is that of its last message
	}
	c.mu.Unlock()
	if !pass {
		return
	}
	c.dispatch(cn, bytes, func() {
		c.handle(r)
		if reached != (Position{}) {
			s.advance(reached)
		}
	})
}

// accept reports whether a publication must be handled, and sets its position. A gap makes the
// subscription ask again from its position. The client's lock must be held.
func (s *Subscription) accept(r *Received, offset uint64) bool {
	switch {
	case !s.live:
		return false // it comes again after the answer
	case s.stateLeft > 0:
		s.stateLeft--
		r.State, r.Position = true, Position{s.received.Epoch, offset}
		return true
	case offset <= s.received.Offset:
		return false
	case offset > s.received.Offset+1:
		s.client.events.Add(func() {
			s.client.log(slog.LevelWarn, "publications are missing; the client asks for them", slog.String("topic", s.topic))
		})
		s.ask()
		return false
	}
	s.received.Offset = offset
	r.Position = s.received
	return true
}

// receiveTopicMessage handles a message of the protocol about a topic.
func (c *Client) receiveTopicMessage(cn *conn, e *envelope) {
	var err error
	switch e.Type {
	case typePosition:
		var m moved
		if err = e.decode(&m); err == nil {
			c.receiveMoved(cn, &m)
		}
	case typePresence:
		var m presenceChange
		if err = e.decode(&m); err == nil {
			c.receivePresence(cn, &m)
		}
	case typeSubscribed:
		var m subscribed
		if err = e.decode(&m); err == nil {
			c.receiveSubscribed(cn, &m)
		}
	case typeUnsubscribed:
		var m unsubscribe
		if err = e.decode(&m); err == nil {
			c.receiveUnsubscribed(m.Topic)
		}
	}
	if err != nil {
		c.log(slog.LevelWarn, "the server has sent a message that cannot be decoded", slog.String("type", e.Type), slog.Any("error", err))
	}
}

// receiveMoved handles a position that moves without a publication.
func (c *Client) receiveMoved(cn *conn, m *moved) {
	c.mu.Lock()
	s := c.topics[m.Topic]
	if s == nil || !s.live || cn != c.topicConn {
		c.mu.Unlock()
		return
	}
	s.received = Position{m.Epoch, m.Offset}
	position, onLoss := s.received, s.opts.OnLoss
	lost := m.Lost != nil || m.Ended != nil || m.Reset
	if lost && s.opts.State && m.Ended == nil {
		s.received = Position{} // so that the answer has the state
		s.ask()
	}
	c.mu.Unlock()
	if !lost {
		c.dispatch(cn, 0, func() { s.advance(position) })
		return
	}
	l := Loss{Ended: m.Ended, Position: position}
	if m.Lost != nil {
		l.From, l.To = m.Lost.From, m.Lost.To
	}
	c.lose(cn, s, onLoss, l)
}

func (c *Client) receivePresence(cn *conn, m *presenceChange) {
	c.mu.Lock()
	s := c.topics[m.Topic]
	if s == nil || s.opts.OnPresence == nil || cn != c.topicConn {
		c.mu.Unlock()
		return
	}
	onPresence := s.opts.OnPresence
	c.mu.Unlock()
	c.dispatch(cn, 0, func() { c.guard("OnPresence", func() { onPresence(m.Joined, m.Left, false) }) })
}

// receiveSubscribed handles a subscription that a handler of the server has made.
func (c *Client) receiveSubscribed(cn *conn, m *subscribed) {
	c.mu.Lock()
	s := c.topics[m.Topic]
	if s == nil {
		s = &Subscription{client: c, topic: m.Topic, ready: make(chan struct{})}
		c.topics[m.Topic] = s
	}
	skip := s.asking != nil // the answer has the position, too
	c.mu.Unlock()
	if !skip {
		c.join(s, cn, m)
	}
}

// receiveUnsubscribed handles the end of a subscription by the server.
func (c *Client) receiveUnsubscribed(topic string) {
	c.mu.Lock()
	s := c.topics[topic]
	c.mu.Unlock()
	if s != nil {
		s.end(ErrUnsubscribed)
	}
}
