package member

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// grant subscribes a connection for a handler, which grants it what g says. It reports whether the connection was
// not subscribed before.
func (n *Node) grant(c Conn, m *Member, name string, g session.Grant) (t *topic.Topic, added bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	added = m.TopicLocked(name) == nil
	if s := m.Session(); s != nil {
		err = n.grantLocked(c, m, s, name, g)
		return m.TopicLocked(name), added, err
	}
	m.unmarkOwnLocked(name)
	if t, err = n.addLocked(m, name, false); err == nil {
		n.showLocked(c, m, t, g)
	}
	return t, added, err
}

// subscribeForClient subscribes a client that asks for it, unless positions is set: then it must be subscribed already. If
// the topic has presence and the request asks for it, the connection also receives the changes of the presence from then
// on, and subscribeForClient returns the members; otherwise, it stops receiving them.
func (n *Node) subscribeForClient(c Conn, m *Member, request *protocol.Subscribe, positions bool) (*topic.Topic, []protocol.Member, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if positions && m.TopicLocked(request.Topic) == nil {
		return nil, nil, topic.ErrUnsubscribed
	}
	t, err := n.addLocked(m, request.Topic, false)
	if err != nil {
		return nil, nil, err
	}
	n.showLocked(c, m, t, session.Grant{Hidden: request.Hidden})
	if s := m.Session(); s != nil {
		s.SetHidden(t.Name, request.Hidden)
	}
	if request.Presence && t.Pattern.Presence {
		return t, n.Topics.Watch(t, &m.Subscriber), nil
	}
	t.Unwatch(&m.Subscriber)
	return t, nil, nil
}

// subscribeSince subscribes a connection from a position on. It waits for the store. What the client has missed is held
// until sendHeld is called.
func (n *Node) subscribeSince(ctx context.Context, m *Member, name string, req topic.JoinRequest) (topic.JoinResult, error) {
	if req.Since != (broker.Position{}) {
		m.ExpectPositions()
	}
	j, err := n.beginJoin(m, name)
	if err != nil {
		return topic.JoinResult{}, err
	}
	result, err := j.Join(ctx, req)
	if err != nil && !errors.Is(err, topic.ErrUnsubscribed) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if j.EndLocked() {
			n.leaveLocked(m, name, false)
		}
	}
	return result, err
}

// beginJoin subscribes the connection unless it is subscribed already.
func (n *Node) beginJoin(m *Member, name string) (*topic.Joining, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left {
		return nil, wsconn.ErrClosed
	}
	return n.Topics.BeginJoinLocked(name, &m.Subscriber, &m.needRecovery().holding)
}

// addLocked subscribes a connection to a topic unless it is subscribed already, and returns the topic. If silent is
// set, a new subscription receives nothing before it is activated.
func (n *Node) addLocked(m *Member, name string, silent bool) (*topic.Topic, error) {
	if m.left {
		return nil, wsconn.ErrClosed
	}
	return n.Topics.SubscribeLocked(name, &m.Subscriber, silent)
}

// JoinUserLog subscribes a connection to the log of its user, if there is one.
func (n *Node) JoinUserLog(c Conn) {
	m := c.Member()
	m.mu.Lock()
	defer m.mu.Unlock()
	n.joinUserLogLocked(m, c.Identity().User)
}

// joinUserLogLocked returns the log, or nil if there is none or the connection has left.
func (n *Node) joinUserLogLocked(m *Member, user session.User) *topic.Topic {
	if !n.UserLogs || user.UserID == "" || m.left {
		return nil
	}
	return n.Topics.SubscribeUserLogLocked(topicname.UserLog(user.TenantID, user.UserID), &m.Subscriber)
}

// AwaitUserLog waits until the connection receives everything that is sent to its user: the first connection of a user on this
// node begins to follow the log. The wait ends with ctx, and 2 s or half of the time of a call after began, so that there is an
// answer if the store is away.
func (n *Node) AwaitUserLog(ctx context.Context, m *Member, began time.Time) {
	m.mu.Lock()
	t := m.UserLogLocked()
	m.mu.Unlock()
	if t != nil && !t.HasStarted() {
		waiting, cancel := context.WithDeadline(ctx, began.Add(min(2*time.Second, n.Timeout/2)))
		defer cancel()
		_ = t.AwaitStart(waiting) // without the store, the client receives what is sent once it is back
	}
}

// IdentityChangedLocked follows a change of the identity. A connection with another user leaves the log of the previous
// one, and joins that of the new one, from now on; the members of its topics become the new user. A function that
// [Member.Do] runs calls it.
func (n *Node) IdentityChangedLocked(c Conn, otherUser bool) {
	m := c.Member()
	s := m.Session()
	if s != nil {
		s.SetIdentity(c.Identity())
	}
	if !otherUser {
		return
	}
	for _, t := range m.TopicsLocked() {
		n.rejoinLocked(c, m, t, "")
	}
	if t := m.UserLogLocked(); t != nil {
		n.announceEndLocked(m, t.Name)
		n.leaveLocked(m, t.Name, false)
	}
	if t := n.joinUserLogLocked(m, c.Identity().User); t != nil && s != nil {
		s.Grant(t.Name, session.Grant{})
		n.announceLocked(m, s, t)
	}
}

// Unsubscribe ends a subscription for a handler, and notifies the client if it has a session.
func (n *Node) Unsubscribe(m *Member, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n.announceEndLocked(m, name)
	n.leaveLocked(m, name, false)
}

// Leave ends a subscription for a client that receives an answer. With keep, its session keeps the topic.
func (n *Node) Leave(m *Member, name string, keep bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n.leaveLocked(m, name, keep)
}

func (n *Node) leaveLocked(m *Member, name string, keep bool) {
	if s := m.Session(); s != nil {
		delete(s.unannounced, name)
		if !keep {
			s.Drop(name)
		}
	}
	m.unmarkOwnLocked(name)
	n.Topics.UnsubscribeLocked(name, &m.Subscriber, !m.goesOn(name))
}

// endState ends the subscription of a client to which the rest of a state cannot be sent, and notifies it of the
// reason. It reports false if the client has unsubscribed or has asked again.
func (n *Node) endState(m *Member, s *topic.StateSender, reason protocol.ErrorPayload) bool {
	m.mu.Lock()
	defer m.mu.Unlock() // so that no other subscription begins meanwhile
	if !s.IsWanted() {
		return false
	}
	n.send(m, protocol.Unsubscribed{Topic: s.Topic.Name, Error: &reason})
	n.leaveLocked(m, s.Topic.Name, false)
	return true
}

// Revoke ends the subscriptions to topics whose access the user has lost. change is zero, or what the store has of it.
func (n *Node) Revoke(m *Member, topics topicname.Matcher, change session.Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n.revokeLocked(m, topics)
	if s := m.Session(); s != nil {
		s.Follow(change)
	}
}

func (n *Node) revokeLocked(m *Member, topics topicname.Matcher) {
	// Subscriptions that are being made, and each calls.Guard, compare the number before and after.
	m.Revocations.Add(1)
	m.WS.AwaitQueuing() // after that, no call sends what it was permitted to before
	for _, t := range append(m.TopicsLocked()[:0:0], m.TopicsLocked()...) {
		if !topics.Matches(t.Name) {
			continue
		}
		if m.HasGreeted() {
			n.send(m, protocol.Unsubscribed{Topic: t.Name})
		}
		n.leaveLocked(m, t.Name, false)
	}
	if s := m.Session(); s != nil {
		s.DropMatching(topics)
	}
}
