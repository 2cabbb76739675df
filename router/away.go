package router

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topicname"
)

// This file has the sessions whose connections have been closed on this node: until they end, or another
// connection resumes them, their connections stay present in their topics.

// A SessionEnd says that a client can no longer resume a session; see ResumeOptions.OnSessionEnd.
type SessionEnd struct {
	ConnID   string // of the last connection of the session on this node
	Identity Identity
	Reason   SessionEndReason
}

// A SessionEndReason says why a session has ended.
type SessionEndReason string

// The reasons.
const (
	SessionClosed  SessionEndReason = "closed"  // the client or the server has closed the connection for good
	SessionExpired SessionEndReason = "expired" // the client has not come back in time, its identity has expired, or the store has lost the record
	SessionRevoked SessionEndReason = "revoked" // by DisconnectUser, while the client was away
	SessionLimited SessionEndReason = "limited" // by Limits.SessionsPerUser or Limits.SessionsPerIP
)

// awayGrace is how much later than its time a session is taken for expired: a client that has resumed it
// at the last moment has then been stored as its owner.
const awayGrace = time.Second

// awaySessions are the sessions that have been left on this node.
type awaySessions struct {
	mu     sync.Mutex // may be acquired under session.mu; only sessionOwners.mu is acquired under it
	byConn map[string]*awaySession
}

// An awaySession belongs to a connection that has been closed. awaySessions.mu guards it.
type awaySession struct {
	session *session
	timer   *time.Timer
	leaves  bool           // it is not present while it is away
	topics  []*topic.Topic // in which it is present: the connection subscribes to them, and receives nothing
}

// addLocked waits for the end of a session whose connection has been closed with a code. It needs
// s.mu. A browser closes a connection with 1001 when its page is left: that member is gone.
func (a *awaySessions) addLocked(s *session, code StatusCode) {
	within := s.record.lifetime(s.conn.router.opts.Resume.Within, time.Now())
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byConn == nil {
		a.byConn = map[string]*awaySession{}
	}
	e := &awaySession{session: s, leaves: code == StatusGoingAway}
	e.timer = time.AfterFunc(max(0, within)+awayGrace, func() { s.conn.router.expireAway(e) })
	a.byConn[s.conn.id] = e
}

// take removes the session of a connection, and returns it, or nil if it has ended or was never there.
func (a *awaySessions) take(connID string) *awaySession {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.byConn[connID]
	if e != nil {
		a.removeLocked(e)
	}
	return e
}

// removeLocked removes a session whose end concerns no one any more.
func (a *awaySessions) removeLocked(e *awaySession) {
	c := e.session.conn
	delete(a.byConn, c.id)
	e.timer.Stop()
	c.router.owners.remove(e.session)
}

// stay lets the member of a closed connection stay in a topic until its session ends or another
// connection has it. It reports false if the connection has no session, or leaves now.
func (a *awaySessions) stay(c *Conn, t *topic.Topic) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.byConn[c.id]
	if e == nil || e.leaves {
		return false
	}
	e.topics = append(e.topics, t)
	return true
}

// endIfUnused removes the session of a closed connection for whose end nobody waits.
func (a *awaySessions) endIfUnused(c *Conn) {
	if c.router.opts.Resume.OnSessionEnd != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.byConn[c.id]; e != nil && len(e.topics) == 0 {
		a.removeLocked(e)
	}
}

// leave ends the presence of a session that take has returned.
func (e *awaySession) leave() {
	c := e.session.conn
	for _, t := range e.topics {
		c.router.topics.Remove(t, &c.sub, !c.goesOn(t.Name))
	}
}

// revoke ends the presence of a user in topics.
func (a *awaySessions) revoke(user userKey, topics topicname.Matcher) {
	for _, c := range a.ofUser(user) {
		for _, t := range a.removeTopics(c.id, topics) {
			c.router.topics.Remove(t, &c.sub, !c.goesOn(t.Name))
		}
	}
}

// removeTopics removes the topics that match from those in which a session is present, and returns them.
func (a *awaySessions) removeTopics(connID string, topics topicname.Matcher) (ended []*topic.Topic) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.byConn[connID]
	if e == nil {
		return nil
	}
	e.topics = slices.DeleteFunc(e.topics, func(t *topic.Topic) bool {
		if matches := topics.Matches(t.Name); !matches {
			return false
		}
		ended = append(ended, t)
		return true
	})
	return ended
}

// stop ends the waiting without an end of the sessions: other nodes let the members stay.
func (a *awaySessions) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.byConn {
		a.removeLocked(e)
	}
}

// giveUp ends the presence of a connection whose session another one has.
func (a *awaySessions) giveUp(connID string) {
	a.mu.Lock()
	e := a.byConn[connID]
	a.mu.Unlock()
	if e != nil {
		e.session.move(nil)
	}
}

// retry lets expireAway run again later.
func (a *awaySessions) retry(e *awaySession) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := e.session.conn; a.byConn[c.id] == e {
		e.timer.Reset(c.router.opts.Resume.refreshInterval())
	}
}

// ofUser returns the connections of a user.
func (a *awaySessions) ofUser(user userKey) (conns []*Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.byConn {
		if c := e.session.conn; c.Identity().user() == user {
			conns = append(conns, c)
		}
	}
	return conns
}

// endAway ends the session of a connection that has been closed, if it has not ended.
func (r *Router) endAway(connID string, reason SessionEndReason) {
	e := r.away.take(connID)
	if e == nil {
		return
	}
	e.leave()
	if !e.session.isSuperseded() {
		r.reportSessionEnd(e.session.conn, reason)
	}
}

// leaveAway ends the presence of a session that has not ended. It reports whether it was away.
func (r *Router) leaveAway(s *session) bool {
	if s.conn.session() != s {
		return false
	}
	e := r.away.take(s.conn.id)
	if e == nil {
		return false
	}
	e.leave()
	return true
}

// expireAway ends a session whose client has not come back to any node. If the store does not answer, it is
// asked again later.
func (r *Router) expireAway(e *awaySession) {
	if r.sessionsClosed.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	c := e.session.conn
	rec, value, err := r.loadSession(ctx, e.session.id)
	switch {
	case err != nil:
		r.away.retry(e)
	case value.Version != 0 && rec.ConnID != c.id:
		e.session.move(nil) // another connection has resumed it
	default:
		r.endAway(c.id, SessionExpired)
	}
}

// reportSessionEnd queues a call of ResumeOptions.OnSessionEnd.
func (r *Router) reportSessionEnd(c *Conn, reason SessionEndReason) {
	if r.opts.Resume.OnSessionEnd == nil {
		return
	}
	end := SessionEnd{c.id, c.Identity(), reason}
	r.events.Add(func() { r.hook("OnSessionEnd", func() { r.opts.Resume.OnSessionEnd(end) }) })
}

// Resumable reports whether the connection has a session that its client can resume on another connection:
// in Options.OnClose, whether the client may come back. It is false once the session has ended, or belongs
// to another connection.
func (c *Conn) Resumable() bool {
	s := c.session()
	return s != nil && !s.isOver()
}
