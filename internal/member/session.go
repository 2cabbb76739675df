package member

import (
	"context"
	"maps"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// This file connects a member with its session, keeps the subscriptions that handlers grant it, and notifies the client
// of them. internal/session decides what happens with a session.

// A Session is the session of a connection, and what its client knows of it.
type Session struct {
	*session.Session

	// Guarded by Member.mu: the topics that the client learns of when the answer has been queued, and
	// whether that has happened.
	unannounced map[string]struct{}
	announced   bool
}

// Inner returns the session without what the client knows. s may be nil.
func (s *Session) Inner() *session.Session {
	if s == nil {
		return nil
	}
	return s.Session
}

// OpenSession returns what the client of a connection needs for its session, after creating that if there is none. It
// returns nil if the client cannot resume it, or if ctx ends before it is stored.
func (n *Node) OpenSession(ctx context.Context, c Conn) *protocol.SessionGrant {
	s, isNew := n.beginSession(c)
	if isNew {
		if !storeFirst(ctx, c.Member(), s) {
			return nil
		}
		n.rejoinAll(c) // other nodes learn that the member stays in its topics if this node ends
	}
	return n.sessionGrant(s)
}

// beginSession returns the connection's session. A new one is not stored yet.
func (n *Node) beginSession(c Conn) (s *Session, isNew bool) {
	m := c.Member()
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.Session()
	if before != nil && !before.IsOver() {
		return before, false
	}
	granted := m.grantedLocked()
	begun := n.Sessions.Begin(c.Session(), c.Identity(), before.Inner(), granted)
	return m.adoptLocked(begun, granted), true
}

// adoptLocked makes a session that of the connection. It may have topics that handlers have granted before the
// connection had a session.
func (m *Member) adoptLocked(inner *session.Session, granted map[string]session.Grant) *Session {
	s, r := &Session{Session: inner, unannounced: map[string]struct{}{}}, m.needRecovery()
	if before := m.Session(); before != nil {
		maps.Copy(s.unannounced, before.unannounced)
	}
	topics := s.Topics()
	for name := range granted {
		if _, ok := topics[name]; ok {
			s.unannounced[name] = struct{}{}
		}
	}
	r.ownTopics = nil
	r.session.Store(s)
	if m.lost {
		m.disconnected(s)
	}
	return s
}

// storeFirst stores a new session, now or later, and drops it if its client does not learn of it.
func storeFirst(ctx context.Context, m *Member, s *Session) (begun bool) {
	defer func() { // even if the broker does not return
		if !begun {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.needRecovery().session.CompareAndSwap(s, nil)
		}
	}()
	return s.StoreFirst(ctx)
}

// sessionGrant returns what the client of a session needs, or nil if it cannot resume it.
func (n *Node) sessionGrant(s *Session) *protocol.SessionGrant {
	token, ok := s.Token()
	if !ok {
		return nil
	}
	return &protocol.SessionGrant{Token: token, ResumeWithinMs: n.Within.Milliseconds()}
}

// DiscardSession ends the session of the connection, if there is one: the client cannot resume it.
func (m *Member) DiscardSession() {
	if s := m.Session(); s != nil {
		s.Discard()
	}
}

// AcknowledgeResume is called when the client confirms that it has received the answer to $ws:resume with this ID.
func (m *Member) AcknowledgeResume(correlationID string) {
	if s := m.Session(); s != nil {
		s.Acknowledge(correlationID)
	}
}

// Lost notes that the transport has ended, after the identity of the connection has changed for the last time.
func (m *Member) Lost() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost = true
	if s := m.Session(); s != nil {
		m.disconnected(s)
	}
}

func (m *Member) disconnected(s *Session) {
	final, leaving := m.closedForGood()
	s.Disconnected(final, leaving)
}

// goesOn reports whether another connection is present in a topic in place of this one.
func (m *Member) goesOn(name string) bool {
	s := m.Session()
	return s != nil && s.GoesOn(name)
}

// grantLocked is Subscribe for a connection with a session.
func (n *Node) grantLocked(c Conn, m *Member, s *Session, name string, g session.Grant) error {
	subscribed := m.TopicLocked(name) != nil
	if err := n.admits(s, name, g); err != nil {
		return err
	}
	silent := s.announced && !subscribed && n.Topics.Retains(name) // until announceLocked makes it a follower
	t, err := n.addLocked(m, name, silent)
	if err != nil {
		return err
	}
	s.Grant(name, g)
	n.showLocked(c, m, t, g)
	if !subscribed {
		n.announceLocked(m, s, t)
	}
	return nil
}

// admits returns an error if another connection has the session, which would not learn of a grant, or if the record
// would be too large with it. s may be nil.
func (n *Node) admits(s *Session, name string, g session.Grant) error {
	if s == nil {
		return nil
	}
	bytes, ok := s.Admits(name, g)
	switch {
	case s.TakenOver():
		return ErrSuperseded
	case ok:
		return nil
	}
	return n.TooLarge(bytes)
}

// grantedLocked returns the subscriptions that handlers have made before the connection had a session.
func (m *Member) grantedLocked() map[string]session.Grant {
	if m.Session() != nil {
		return nil
	}
	granted, r := map[string]session.Grant{}, m.needRecovery()
	for _, t := range m.TopicsLocked() {
		if _, own := r.ownTopics[t.Name]; !own {
			granted[t.Name] = m.grantedTopic(t)
		}
	}
	return granted
}

// grantedTopic returns what a handler has granted that has subscribed the connection to a topic.
func (m *Member) grantedTopic(t *topic.Topic) session.Grant {
	present, joined := t.Member(&m.Subscriber)
	always := t.Pattern.Presence
	return session.Grant{Joined: joined && !always || present.Info != "", Info: present.Info, Hidden: always && !joined}
}

// markOwn notes that the client has subscribed to a topic itself. A session notes what handlers grant instead.
func (m *Member) markOwn(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Session() != nil || m.TopicLocked(name) == nil {
		return
	}
	r := m.needRecovery()
	if r.ownTopics == nil {
		r.ownTopics = map[string]struct{}{}
	}
	r.ownTopics[name] = struct{}{}
}

// unmarkOwnLocked notes that the client is no longer subscribed, or that a handler subscribes it.
func (m *Member) unmarkOwnLocked(name string) {
	if r := m.recovery.Load(); r != nil {
		delete(r.ownTopics, name)
	}
}

// announceLocked notifies the client of a new subscription. On a topic with a History, the client becomes a
// follower, as soon as the position is known. Before the client has received the answer with its
// token, only the latter happens, when AnnounceTopics is called.
func (n *Node) announceLocked(m *Member, s *Session, t *topic.Topic) {
	switch {
	case !s.announced:
		s.unannounced[t.Name] = struct{}{}
	case t.Pattern.HasHistory():
		n.followFromNow(m, t)
	default:
		n.send(m, protocol.Subscribed{Topic: t.Name})
	}
}

// followFromNow makes the connection receive the positions of a topic with a History to which it
// subscribes.
func (n *Node) followFromNow(m *Member, t *topic.Topic) {
	n.Topics.FollowFromNow(t, &m.Subscriber, &m.needRecovery().holding, func(at broker.Position) *wsconn.Frame {
		if s := m.Session(); s != nil {
			s.SetPosition(t.Name, at)
		}
		return n.encode(m, protocol.Subscribed{Topic: topicname.ForClient(t.Name), Position: (*protocol.Position)(&at)})
	})
}

// AnnounceTopics notifies the client of the subscriptions that it has not learned of, when an answer
// with its token has been queued: except of those in the answer.
func (n *Node) AnnounceTopics(m *Member, except []string) {
	if m.Session() == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.Session()
	if s == nil || s.announced {
		return
	}
	s.announced = true
	for _, name := range except {
		delete(s.unannounced, name)
	}
	for name := range s.unannounced {
		if t := m.TopicLocked(name); t != nil { // another connection may have resumed the session meanwhile
			n.announceLocked(m, s, t)
		}
	}
	s.unannounced = nil
}

// announceEndLocked notifies the client that a handler ends a subscription.
func (n *Node) announceEndLocked(m *Member, name string) {
	if s := m.Session(); s != nil && s.announced && m.TopicLocked(name) != nil {
		n.send(m, protocol.Unsubscribed{Topic: topicname.ForClient(name)})
	}
}

// grantSince notes that a handler has subscribed the connection from a position on, or with the current state, and
// notifies the client with subscribed before it receives what it has missed.
func (n *Node) grantSince(m *Member, g session.Grant, subscribed protocol.Subscribed) {
	if m.recovery.Load() == nil {
		return
	}
	name := subscribed.Topic
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unmarkOwnLocked(name)
	s := m.Session()
	if s == nil || s.TakenOver() || m.TopicLocked(name) == nil {
		return
	}
	s.Grant(name, g)
	if !s.announced {
		s.unannounced[name] = struct{}{}
	} else {
		n.send(m, subscribed)
	}
}
