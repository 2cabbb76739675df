package router

import (
	"context"
	"maps"
	"time"

	"github.com/penstock-go/penstock/internal/ipprefix"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/userpacket"
)

// This file connects sessions with their connections. internal/session decides what happens with a
// session; session_topics.go keeps its subscriptions, and resume.go continues it on another connection.

// A connSession is the session of a connection, and what its client knows of it.
type connSession struct {
	*session.Session

	conn *Conn

	// Guarded by Conn.mu: the topics that the client learns of when the answer has been queued, and
	// whether that has happened.
	unannounced map[string]struct{}
	announced   bool
}

// maxSessionBytes bounds the record of a session: of each topic about 100 bytes, the name and the info.
const maxSessionBytes = 128 << 10

// initSessions creates the sessions of the router, whose store is set later.
func (r *Router) initSessions() {
	limits := &r.opts.Limits
	r.sessions = session.New(session.Config{
		Within: r.opts.Resume.Within, MaxBytes: maxSessionBytes,
		PerUser: limits.SessionsPerUser, PerAddress: limits.ConnsPerIP,
		LongestGrace: func() time.Duration { return r.topics.MaxGrace },
		WatchesEnds:  r.opts.Resume.OnSessionEnd != nil,
		Publish:      r.publishSessionPacket,
	})
}

// publishSessionPacket publishes a packet about a session to other nodes, which notice a loss later.
func (r *Router) publishSessionPacket(kind session.Packet, packet []byte) {
	first := byte(userpacket.SessionClaimed)
	if kind == session.PacketMoved {
		first = userpacket.SessionMoved
	}
	_ = r.publishToNodes(func() []byte { return append([]byte{first}, packet...) })
}

// session returns the session of the connection, or nil.
func (c *Conn) session() *connSession {
	if r := c.extra().recovery.Load(); r != nil {
		return r.session.Load()
	}
	return nil
}

// sessionConn returns the connection as a session needs it.
func (c *Conn) sessionConn() *session.Conn {
	conn := &session.Conn{ID: c.id, Act: c.actForSession}
	if c.ip.IsValid() {
		conn.Address = ipprefix.Of(c.ip)
	}
	return conn
}

func (id *connIdentity) ofSession() session.Identity {
	if id == nil {
		return session.Identity{}
	}
	return session.Identity{User: session.User(id.user()), ExpiresAt: id.ExpiresAt, Since: id.since}
}

// openSession returns the session of the connection, after creating it if there is none. It returns
// nil if sessions are disabled or the call has ended.
func (c *Conn) openSession(ctx context.Context) *protocol.SessionGrant {
	if !c.router.resumes() {
		return nil
	}
	s, isNew := c.beginSession()
	if isNew {
		if !c.storeFirst(ctx, s) {
			return nil
		}
		c.announceSession()
	}
	return s.grant()
}

// grant returns what the client needs, or nil if it cannot resume the session.
func (s *connSession) grant() *protocol.SessionGrant {
	token, ok := s.Token()
	if !ok {
		return nil
	}
	return &protocol.SessionGrant{Token: token, ResumeWithinMs: s.conn.router.opts.Resume.Within.Milliseconds()}
}

// beginSession returns the connection's session. A new one is not stored yet.
func (c *Conn) beginSession() (s *connSession, isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.session()
	if before != nil && !before.IsOver() {
		return before, false
	}
	granted := c.grantedLocked()
	begun := c.router.sessions.Begin(c.sessionConn(), c.identity.Load().ofSession(), before.inner(), granted)
	return c.adoptSessionLocked(begun, granted), true
}

// inner returns the session without what the client knows. s may be nil.
func (s *connSession) inner() *session.Session {
	if s == nil {
		return nil
	}
	return s.Session
}

// adoptSessionLocked makes a session that of the connection. It may have topics that handlers have
// granted before the connection had a session.
func (c *Conn) adoptSessionLocked(inner *session.Session, granted map[string]session.Grant) *connSession {
	s, recovery := &connSession{Session: inner, conn: c, unannounced: map[string]struct{}{}}, c.resumableState()
	if before := c.session(); before != nil {
		maps.Copy(s.unannounced, before.unannounced)
	}
	topics := s.Topics()
	for name := range granted {
		if _, ok := topics[name]; ok {
			s.unannounced[name] = struct{}{}
		}
	}
	recovery.ownTopics = nil
	recovery.session.Store(s)
	if c.ctx.Err() != nil { // endSession may have run before
		c.disconnectSession(s)
	}
	return s
}

// storeFirst stores a new session, now or later, and drops it if its client does not learn of it.
func (c *Conn) storeFirst(ctx context.Context, s *connSession) (begun bool) {
	defer func() { // even if the broker does not return
		if !begun {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.resumableState().session.CompareAndSwap(s, nil)
		}
	}()
	return s.StoreFirst(ctx)
}

// announceSession notifies other nodes that the member stays in its topics if this node ends.
func (c *Conn) announceSession() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.sub.TopicsLocked() {
		c.rejoinLocked(t, "")
	}
}

// endsSession reports whether a close frame with a code ends the session. It does if one side has
// closed the connection deliberately, or because the client violates the protocol or lacks a
// permission; otherwise, the client may come back.
func endsSession(code StatusCode) bool {
	switch code {
	case StatusGoingAway, statusNone, StatusAbnormal, StatusTooBig, StatusInternalError, StatusServiceRestart, StatusTryAgainLater:
		return false
	default:
		return true
	}
}

// endSession is called when the connection has been closed, after its identity has changed for the
// last time.
func (c *Conn) endSession() {
	if c.extra().recovery.Load() == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.session(); s != nil {
		c.disconnectSession(s)
	}
}

func (c *Conn) disconnectSession(s *connSession) {
	code, _ := c.sub.WS.Status()
	s.Disconnected(endsSession(StatusCode(code)), StatusCode(code) == StatusGoingAway)
}

// goesOn reports whether another connection is present in a topic in place of this one.
func (c *Conn) goesOn(topic string) bool {
	s := c.session()
	return s != nil && s.GoesOn(topic)
}

// discardSession ends the session of the connection: the client cannot resume it.
func (c *Conn) discardSession() {
	if s := c.session(); s != nil {
		s.Discard()
	}
}

// acknowledgeResume is called when the client confirms that it has received the answer to $ws:resume
// with this ID.
func (c *Conn) acknowledgeResume(correlationID string) {
	if s := c.session(); s != nil {
		s.Acknowledge(correlationID)
	}
}

// Resumable reports whether the connection has a session that its client can resume on another
// connection: in Options.OnClose, whether the client may come back. It is false once the session
// has ended, or belongs to another connection.
func (c *Conn) Resumable() bool {
	s := c.session()
	return s != nil && !s.IsOver()
}

// actForSession is session.Conn.Act.
func (c *Conn) actForSession(s *session.Session, a session.Action) {
	switch a.Kind {
	case session.StopServing:
		c.draining.CompareAndSwap(notDraining, drainingSuperseded)
		time.AfterFunc(supersededWait, func() {
			if s.TakenOver() {
				c.closeSuperseded()
			}
		})
	case session.GiveUp:
		c.drainSuperseded()
	case session.LeaveTopics:
		for _, name := range a.Topics {
			c.router.topics.Remove(c.router.topics.Find(name), &c.sub, !c.goesOn(name))
		}
	case session.ReportEnd:
		c.router.reportSessionEnd(c, a.Reason)
	case session.EndAccess:
		c.endAccess(s, a.Revoked)
	}
}

// endAccess ends the subscriptions to topics to which the user has lost access without the session
// knowing it, or the connection.
func (c *Conn) endAccess(s *session.Session, revoked session.Revoked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	topics, end := s.Apply(revoked)
	for _, t := range topics {
		c.revokeLocked(t)
	}
	switch {
	case end == nil:
	case end.Code == 0:
		c.Close(StatusTryAgainLater, unknownReason(1))
	default:
		c.Close(StatusCode(end.Code), end.Reason)
	}
}
