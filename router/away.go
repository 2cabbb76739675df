package router

import (
	"context"
	"sync"
	"time"
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
	mu     sync.Mutex // may be acquired under session.mu; nothing is called under it
	byConn map[string]*awaySession
}

// An awaySession belongs to a connection that has been closed. awaySessions.mu guards it.
type awaySession struct {
	session *session
	timer   *time.Timer
}

// add waits for the end of a session whose connection has been closed. It must be called with s.mu held.
func (a *awaySessions) add(s *session) {
	within := s.record.lifetime(s.conn.router.opts.Resume.Within, time.Now())
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byConn == nil {
		a.byConn = map[string]*awaySession{}
	}
	e := &awaySession{session: s}
	e.timer = time.AfterFunc(max(0, within)+awayGrace, func() { s.conn.router.expireAway(e) })
	a.byConn[s.conn.id] = e
}

// take removes the session of a connection, and returns it, or nil if it has ended or was never there.
func (a *awaySessions) take(connID string) *awaySession {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.byConn[connID]
	if e == nil {
		return nil
	}
	delete(a.byConn, connID)
	e.timer.Stop()
	return e
}

// retry lets expireAway run again later.
func (a *awaySessions) retry(e *awaySession) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := e.session.conn; a.byConn[c.id] == e {
		e.timer.Reset(c.router.opts.Resume.refreshInterval())
	}
}

// ofUser returns the IDs of the connections of a user.
func (a *awaySessions) ofUser(user userKey) (connIDs []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, e := range a.byConn {
		if e.session.conn.Identity().user() == user {
			connIDs = append(connIDs, id)
		}
	}
	return connIDs
}

// endAway ends the session of a connection that has been closed, if it has not ended.
func (r *Router) endAway(connID string, reason SessionEndReason) {
	if e := r.away.take(connID); e != nil {
		r.reportSessionEnd(e.session.conn, reason)
	}
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
		r.away.take(c.id) // another connection has resumed it
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
