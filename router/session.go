package router

import (
	"context"
	"crypto/rand"
	"maps"
	"sync"
	"time"
)

// This file has the session of a connection: how it begins and ends. session_save.go stores its
// record, session_topics.go keeps its subscriptions, and resume.go continues it on another connection.

// A session belongs to one connection at a time. Its record in the store says to which: the node of
// another connection takes it over by replacing the record, after which this session is over.
type session struct {
	conn     *Conn
	id       string
	memberID string // the Member.ConnID of its connections

	// Guarded by Conn.mu: the topics that the client learns of when the answer has been queued, and
	// whether that has happened.
	unannounced map[string]struct{}
	announced   bool

	mu             sync.Mutex
	token          string // for the client
	unacknowledged string // the correlation ID of $ws:resume, until the client acknowledges the answer
	record         sessionRecord
	stored         []byte    // the stored record
	version        uint64    // of stored
	until          time.Time // when the client can no longer resume; zero while the connection is open
	discarded      bool      // the record must be deleted
	over           bool      // nothing is stored any more
	takenOver      bool      // because another connection has the session

	// The user whose revocationList the session follows, and whether it may have missed a change.
	revocationsOf userKey
	mustCatchUp   bool

	// See session_save.go.
	dirty, saving bool
	backoff       time.Duration
	timer         *time.Timer // until the next save; nil before the first
}

// A sessionGrant gives a client the means to resume its session.
type sessionGrant struct {
	Token          string `json:"token"`
	ResumeWithinMs int64  `json:"resumeWithinMs"`
}

// session returns the session of the connection, or nil.
func (c *Conn) session() *session {
	if r := c.extra().recovery.Load(); r != nil {
		return r.session.Load()
	}
	return nil
}

// openTimeout bounds how long the greeting waits for the store.
const openTimeout = 2 * time.Second

// openSession returns the session of the connection, after creating it if there is none. It returns
// nil if sessions are disabled or the store does not answer.
func (c *Conn) openSession(ctx context.Context) *sessionGrant {
	if !c.router.resumes() {
		return nil
	}
	s, isNew := c.beginSession()
	if isNew && !c.storeFirst(ctx, s) {
		return nil
	}
	return s.grant()
}

// storeFirst stores a new session, and drops it if that fails.
func (c *Conn) storeFirst(ctx context.Context, s *session) (stored bool) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	defer func() { // even if the broker calls runtime.Goexit
		if !stored {
			c.dropSession(s)
		}
	}()
	return s.catchUp(ctx) == nil && s.saveFirst(ctx)
}

// beginSession returns the connection's session. A new one is not stored yet.
func (c *Conn) beginSession() (s *session, isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.session(); s != nil && !s.isOver() {
		return s, false
	}
	s = &session{conn: c, id: rand.Text(), memberID: c.id, saving: true, dirty: true}
	s.record.Generation = 1
	s.token, s.record.Secret = newToken(s.id)
	c.adoptSession(s)
	return s, true
}

// adoptSession makes s, which has no goroutines yet, the session of the connection. It must be called
// with c.mu held.
func (c *Conn) adoptSession(s *session) {
	s.record.ConnID = c.id
	s.record.setIdentity(c.Identity())
	s.takeTopics(c.topics.all(), c.session())
	c.recoveryState().session.Store(s)
	if c.ctx.Err() != nil { // endSession may have run before
		code, _ := c.ws.Status()
		s.end(StatusCode(code))
	}
}

// dropSession ends a session whose token the client does not receive.
func (c *Conn) dropSession(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recoveryState().session.CompareAndSwap(s, nil)
	s.discard()
}

// grant returns what the client needs, or nil if the session is over.
func (s *session) grant() *sessionGrant {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.discarded {
		return nil
	}
	return &sessionGrant{s.token, s.conn.router.opts.Resume.Within.Milliseconds()}
}

func (s *session) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over || s.discarded
}

// setIdentity follows a change of the connection's identity. Topics are changed under the same lock,
// so a stored record never gives one identity the topics of another.
func (s *session) setIdentity(id Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.setIdentity(id)
	s.changed()
}

// acknowledgeResume is called when the client confirms that it has received the answer to $ws:resume
// with this ID, and with it the new token: the previous one becomes invalid.
func (c *Conn) acknowledgeResume(correlationID string) {
	s := c.session()
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if correlationID != "" && s.unacknowledged == correlationID {
		s.unacknowledged, s.record.Previous = "", nil
		s.changed()
	}
}

// endsSession reports whether a close frame with a code ends the session. It does if one side has
// closed the connection deliberately, or because the client violates the protocol or lacks a
// permission; otherwise, the client may come back.
func endsSession(code StatusCode) bool {
	switch code {
	case StatusGoingAway, StatusNone, StatusAbnormal, StatusTooBig, StatusInternalError, StatusServiceRestart, StatusTryAgainLater:
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
		code, _ := c.ws.Status()
		s.end(StatusCode(code))
	}
}

// end starts the time within which the client can resume the session, or ends the session.
func (s *session) end(code StatusCode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discarded = s.discarded || endsSession(code)
	if s.until.IsZero() {
		s.until = time.Now().Add(s.conn.router.opts.Resume.Within)
		s.changed()
		switch r := s.conn.router; {
		case s.takenOver:
		case s.discarded:
			r.reportSessionEnd(s.conn, SessionClosed)
		case s.over:
			r.reportSessionEnd(s.conn, SessionExpired) // the store has lost the record
		default:
			s.leaveSession()
			r.away.add(s, code)
		}
	}
}

// discardSession ends the session of the connection: the client cannot resume it.
func (c *Conn) discardSession() {
	if s := c.session(); s != nil {
		s.discard()
	}
}

func (s *session) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.discarded {
		s.discarded = true
		s.changed()
	}
}

// supersede ends the connection of a session that another connection has resumed.
func (s *session) supersede() {
	s.stop()
	s.conn.drainSuperseded()
}

// stop ends the session on this node, and leaves the record to others.
func (s *session) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takenOver = true
	s.finish()
}

// finish leaves the record as it is from now on. It must be called with s.mu held.
func (s *session) finish() {
	s.over = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// receiveSuperseded handles the packet that publishSuperseded has sent.
func (r *Router) receiveSuperseded(packet []byte) {
	connID, rest, ok := cutString(packet)
	if !ok {
		return
	}
	if id, _, ok := cutString(rest); ok {
		r.supersedeLocal(connID, id)
	}
}

// supersedeLocal ends a connection of this node, if it has the session. It reports whether the
// connection is one of this node.
func (r *Router) supersedeLocal(connID, sessionID string) bool {
	c := r.conns.byID(connID)
	if c == nil {
		return r.forgetAway(connID)
	}
	if s := c.session(); s != nil && s.id == sessionID {
		s.supersede()
	}
	return true
}

// supersedeOther ends the connection to which a session has belonged, on any node. If the packet is
// lost, that connection notices when it stores the record again.
func (r *Router) supersedeOther(connID, sessionID string) {
	if r.supersedeLocal(connID, sessionID) {
		return
	}
	_ = r.publishToNodes(func() []byte {
		return appendString(appendString([]byte{packetSessionSuperseded}, connID), sessionID)
	})
}

// takeTopics copies the topics of the session that the connection had before, or the subscriptions that
// handlers have made if it had none.
func (s *session) takeTopics(subscribed []*topic, before *session) {
	if s.record.Topics == nil {
		s.record.Topics = map[string]topicGrant{}
	}
	s.unannounced = map[string]struct{}{}
	if before != nil {
		maps.Copy(s.unannounced, before.unannounced)
		maps.Copy(s.record.Topics, before.topics())
		return
	}
	recovery := s.conn.recoveryState()
	for _, t := range subscribed {
		if _, own := recovery.ownTopics[t.name]; own {
			continue
		}
		if grant := t.topicGrant(s.conn); s.admits(t.name, grant) == nil {
			s.unannounced[t.name] = struct{}{}
			s.record.Topics[t.name] = grant
		}
	}
	recovery.ownTopics = nil
}
