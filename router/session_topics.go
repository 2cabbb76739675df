package router

import (
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file keeps the subscriptions that handlers make for a connection with a session, and notifies
// the client of them. The methods must be called with Conn.mu held, unless they say otherwise.

// subscribe is Conn.Subscribe without a position.
func (s *connSession) subscribe(topic string, t session.Grant) error {
	c := s.conn
	subscribed := c.sub.TopicLocked(topic) != nil
	if err := s.admits(topic, t); err != nil {
		return err
	}
	silent := s.announced && !subscribed && c.router.topics.Retains(topic) // until announce makes it a follower
	added, err := c.addSubscriptionLocked(topic, silent)
	if err != nil {
		return err
	}
	s.Grant(topic, t)
	if t.Joined || added.Pattern.Presence {
		c.joinLocked(added, t.Info)
	}
	if !subscribed {
		s.announce(added)
	}
	return nil
}

// admits returns an error if another connection has the session, which would not learn of the grant, or if
// the record would be too large with it. s may be nil; Conn.mu need not be held.
func (s *connSession) admits(topic string, g session.Grant) error {
	if s == nil {
		return nil
	}
	bytes, ok := s.Admits(topic, g)
	switch {
	case s.TakenOver():
		return errSuperseded
	case ok:
		return nil
	}
	return &LimitExceeded{Kind: LimitSession, Observed: int64(bytes), Limit: maxSessionBytes, RetryAfter: errors.Never}
}

// drop removes a topic that the connection leaves.
func (s *connSession) drop(topic string) {
	delete(s.unannounced, topic)
	s.Drop(topic)
}

// grantedLocked returns the subscriptions that handlers have made before the connection had a session.
func (c *Conn) grantedLocked() map[string]session.Grant {
	if c.session() != nil {
		return nil
	}
	granted, recovery := map[string]session.Grant{}, c.resumableState()
	for _, t := range c.sub.TopicsLocked() {
		if _, own := recovery.ownTopics[t.Name]; !own {
			granted[t.Name] = c.grantedTopic(t)
		}
	}
	return granted
}

// markOwn notes that the client has subscribed to a topic by itself. A session notes what handlers
// grant instead. It acquires Conn.mu.
func (c *Conn) markOwn(topic string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session() != nil || c.sub.TopicLocked(topic) == nil {
		return
	}
	r := c.resumableState()
	if r.ownTopics == nil {
		r.ownTopics = map[string]struct{}{}
	}
	r.ownTopics[topic] = struct{}{}
}

// unmarkOwn notes that the client is no longer subscribed, or that a handler subscribes it.
func (c *Conn) unmarkOwn(topic string) {
	if r := c.extra().recovery.Load(); r != nil {
		delete(r.ownTopics, topic)
	}
}

// grantedTopic returns what a handler has granted that has subscribed the connection to a topic.
func (c *Conn) grantedTopic(t *topic.Topic) session.Grant {
	m, joined := t.Member(&c.sub)
	return session.Grant{Joined: joined && !t.Pattern.Presence || m.Info != "", Info: m.Info}
}

// announce notifies the client of a new subscription. On a topic with a History, the client becomes a
// follower, as soon as the position is known. Before the client has received the answer with its
// token, only the latter happens, when announceTopics is called.
func (s *connSession) announce(t *topic.Topic) {
	switch c := s.conn; {
	case !s.announced:
		s.unannounced[t.Name] = struct{}{}
	case t.Pattern.HasHistory():
		c.followFromNow(t)
	default:
		_ = c.send(encodeProtocol(c.codec(), protocol.Subscribed{Topic: t.Name})) // fails only if the connection is closed
	}
}

// followFromNow makes the connection receive the positions of a topic with a History to which it
// subscribes.
func (c *Conn) followFromNow(t *topic.Topic) {
	c.router.topics.FollowFromNow(t, &c.sub, &c.resumableState().holding, func(at broker.Position) *wsconn.Frame {
		if s := c.session(); s != nil {
			s.SetPosition(t.Name, at)
		}
		return encodeProtocol(c.codec(), protocol.Subscribed{Topic: topicname.ForClient(t.Name), Position: (*protocol.Position)(&at)})
	})
}

// announceTopics notifies the client of the subscriptions that it has not learned of, when an answer
// with its token has been queued: except of those in the answer. It acquires Conn.mu.
func (c *Conn) announceTopics(except []string) {
	if c.session() == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.session()
	if s == nil || s.announced {
		return
	}
	s.announced = true
	for _, topic := range except {
		delete(s.unannounced, topic)
	}
	for topic := range s.unannounced {
		if t := c.sub.TopicLocked(topic); t != nil { // another connection may have resumed the session meanwhile
			s.announce(t)
		}
	}
	s.unannounced = nil
}

// announceEnd notifies the client that a handler ends a subscription.
func (s *connSession) announceEnd(topic string) {
	c := s.conn
	if c.sub.TopicLocked(topic) != nil && s.announced {
		_ = c.send(encodeProtocol(c.codec(), protocol.Unsubscribed{Topic: topicname.ForClient(topic)})) // fails only if the connection is closed
	}
}

// addRecoveredTopic adds a topic that a handler has subscribed with Since or, with state set,
// CurrentState, and notifies the client before it receives what it has missed. It acquires Conn.mu.
func (c *Conn) addRecoveredTopic(topic string, recovery topic.JoinResult, state bool) {
	if c.extra().recovery.Load() == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unmarkOwn(topic)
	s := c.session()
	if s == nil || s.TakenOver() || c.sub.TopicLocked(topic) == nil {
		return
	}
	s.Grant(topic, session.Grant{Epoch: recovery.Position.Epoch, Offset: recovery.Position.Offset, State: state})
	if !s.announced {
		s.unannounced[topic] = struct{}{}
	} else {
		subscribed := protocol.Subscribed{Topic: topic}
		addRecovery(&subscribed, recovery)
		_ = c.send(encodeProtocol(c.codec(), subscribed))
	}
}
