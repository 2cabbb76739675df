package member

import (
	"context"
	"maps"
	"slices"

	"github.com/penstock-go/penstock/internal/calls"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topicname"
)

// This file continues a session on another connection. internal/session moves it, and resume_topics.go subscribes the
// connection to its topics.

// A Resume is a request of a client to resume a session, and what the application decides about it.
type Resume struct {
	protocol.Resume

	CorrelationID string
	Guard         *calls.Guard // of the call, since before the list of revocations is read

	// Admit is session.Request.Admit.
	Admit func(previous string, topics []string) (dropped map[string]struct{}, err error)

	// Authorize returns an error unless the client may subscribe to a topic of a pattern.
	Authorize func(*topic.Pattern, *protocol.Subscribe) error

	// Protect calls f, and returns the failure of its error or of its panic, or nil.
	Protect func(where string, f func() error) *failure.Failure

	// Report reports why a topic is refused.
	Report func(*failure.Failure)

	// SetReply replaces the answer.
	SetReply func(protocol.Resumed)
}

// Resume resumes a session on a connection. Later messages of the connection must be handled after it has returned.
// ctx ends with the call.
func (n *Node) Resume(ctx context.Context, c Conn, req *Resume) (reply protocol.Resumed, err error) {
	m := c.Member()
	claim, err := n.Sessions.Claim(ctx, &session.Request{
		Token: req.Token, CorrelationID: req.CorrelationID, Conn: c.Session(), Identity: c.Identity(), Current: m.Session().Inner(), Admit: req.Admit,
	})
	if err != nil {
		return reply, err
	}
	claim.Announce()
	s, err := n.adopt(c, m, claim)
	if err != nil {
		return reply, err
	}
	r := resumption{Resume: req, ctx: ctx, node: n, conn: c, member: m, session: s}
	topics := r.topicsToResume(claim)
	req.Guard.Decide = func() error {
		r.withdraw(topics)
		reply.Topics = r.results(topics)
		req.SetReply(reply)
		return nil
	}
	r.resumeTopics(topics)
	reply.Topics = r.results(topics)
	_ = req.Guard.Check() // never an error
	if err := ctx.Err(); err != nil {
		return protocol.Resumed{}, err // the member stays with the other connection until the client tries again
	}
	// Not before: the member would leave with the other connection, and join with this one.
	if lacking, ok := m.lacking(claim); ok {
		claim.AnnounceMoved(lacking)
	}
	reply.Session, reply.MemberID = n.sessionGrant(s), s.MemberID()
	return reply, nil
}

// StartResumed sends what has been held until the answer to Resume was queued.
func (n *Node) StartResumed(c Conn) {
	m := c.Member()
	var resumed []string
	if r := m.recovery.Load(); r != nil {
		resumed, r.resumed = r.resumed, nil
	}
	for _, name := range resumed {
		n.StartTopic(c, name)
	}
	n.AnnounceTopics(m, resumed)
}

// adopt makes a claimed session that of a connection, unless another one has claimed it since. It ends the session
// that the connection had.
func (n *Node) adopt(c Conn, m *Member, claim *session.Claim) (*Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	granted := m.grantedLocked()
	if err := claim.Adopt(c.Identity(), m.Session().Inner(), granted); err != nil {
		return nil, err
	}
	s := m.adoptLocked(claim.Session, granted)
	for _, t := range m.TopicsLocked() { // as the member of the session
		n.rejoinLocked(c, m, t, claim.Topics[t.Name].Info)
	}
	return s, nil
}

// lacking returns the topics in which the client may have been present with the session, and is not with the connection.
// It reports false if the connection has ended meanwhile, and with it all subscriptions.
func (m *Member) lacking(claim *session.Claim) (topics []string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left {
		return nil, false
	}
	for _, name := range append(slices.Sorted(maps.Keys(claim.Topics)), claim.Ended...) {
		if m.TopicLocked(name) == nil {
			topics = append(topics, name)
		}
	}
	for _, t := range m.TopicsLocked() {
		if _, joined := t.Member(&m.Subscriber); t.Pattern.Presence && !joined {
			topics = append(topics, t.Name)
		}
	}
	return topics, true
}

// restore subscribes a connection to a topic that a handler has granted. If silent is set, nothing is received before
// the position is known.
func (n *Node) restore(c Conn, m *Member, name string, g session.Grant, silent bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := n.addLocked(m, name, silent)
	if err == nil {
		n.showLocked(c, m, t, g)
	}
	return err
}

// announceLater makes a subscriber whose position could not be read in time a follower as soon as it can, because the
// client cannot ask for the subscriptions of handlers. It reports false if the connection has unsubscribed meanwhile.
func (m *Member) announceLater(s *Session, name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.TopicLocked(name) == nil {
		return false
	}
	s.unannounced[name] = struct{}{}
	return true
}

// EndAccess ends the subscriptions to topics to which the user has lost access without the session knowing it. It
// returns how the connection must be closed, or nil.
func (n *Node) EndAccess(m *Member, s *session.Session, revoked session.Revoked) *session.End {
	m.mu.Lock()
	defer m.mu.Unlock()
	var topics []topicname.Matcher
	topics, end := s.Apply(revoked)
	for _, t := range topics {
		n.revokeLocked(m, t)
	}
	return end
}
