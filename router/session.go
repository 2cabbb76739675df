package router

import (
	"context"
	"crypto/rand"
	"maps"
	"sync"
	"time"

	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/topic"
)

// This file has the session of a connection: how it begins and ends. session_save.go stores its
// record, session_topics.go keeps its subscriptions, resume.go continues it on another connection,
// and session_owners.go ends it on this one.

// A session belongs to one connection at a time. Its record in the store says to which: the node of
// another connection takes it over by replacing the record, after which this session is over.
type session struct {
	conn       *Conn
	id         string
	memberID   string // the Member.ConnID of its connections
	generation uint64 // sessionRecord.Generation

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
	claiming       bool      // the store has not answered whether the connection has the session
	takenOver      bool      // another connection has the session
	moved          bool      // and has subscribed to its topics
	ended          []string  // except these

	// The user whose revocationList the session follows, and whether it may have missed a change.
	revocationsOf userKey
	mustCatchUp   bool

	// See session_save.go.
	dirty, saving bool
	backoff       time.Duration
	timer         *time.Timer // until the next save; nil before the first
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

// announceSession notifies other nodes that the member stays in its topics if this node ends.
func (c *Conn) announceSession() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.sub.TopicsLocked() {
		c.rejoinLocked(t, "")
	}
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
	s = &session{conn: c, id: rand.Text(), memberID: c.id, generation: 1, saving: true, dirty: true}
	s.record.Generation = s.generation
	s.token, s.record.Secret = newToken(s.id)
	c.router.owners.add(s)
	c.adoptSessionLocked(s)
	return s, true
}

// adoptSessionLocked makes s, which has no goroutines yet, the session of the connection.
func (c *Conn) adoptSessionLocked(s *session) {
	s.record.ConnID = c.id
	s.record.setIdentity(c.Identity())
	before := c.session()
	s.takeTopics(c.sub.TopicsLocked(), before)
	c.resumableState().session.Store(s)
	if before != nil {
		c.router.owners.remove(before)
	}
	if c.ctx.Err() != nil { // endSession may have run before
		code, _ := c.sub.WS.Status()
		s.end(StatusCode(code))
	}
}

// dropSession ends a session whose token the client does not receive.
func (c *Conn) dropSession(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resumableState().session.CompareAndSwap(s, nil)
	c.router.owners.remove(s)
	s.discard()
}

// grant returns what the client needs, or nil if the session is over.
func (s *session) grant() *protocol.SessionGrant {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.discarded {
		return nil
	}
	return &protocol.SessionGrant{Token: s.token, ResumeWithinMs: s.conn.router.opts.Resume.Within.Milliseconds()}
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
	s.changedLocked()
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
		s.changedLocked()
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
		code, _ := c.sub.WS.Status()
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
		s.changedLocked()
		switch r := s.conn.router; {
		case s.moved:
			r.owners.remove(s)
		case s.takenOver: // the member stays until the other connection is present
			r.away.addLocked(s, StatusAbnormal)
		case s.discarded:
			r.owners.remove(s)
			r.reportSessionEnd(s.conn, SessionClosed)
		case s.over:
			r.owners.remove(s)
			r.reportSessionEnd(s.conn, SessionExpired) // the store has lost the record
		default:
			s.leaveSessionLocked()
			r.away.addLocked(s, code)
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
		s.changedLocked()
	}
}

// finishLocked leaves the record as it is from now on.
func (s *session) finishLocked() {
	s.over = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// takeTopics copies the topics of the session that the connection had before, or the subscriptions that
// handlers have made if it had none.
func (s *session) takeTopics(subscribed []*topic.Topic, before *session) {
	if s.record.Topics == nil {
		s.record.Topics = map[string]topicGrant{}
	}
	s.unannounced = map[string]struct{}{}
	if before != nil {
		maps.Copy(s.unannounced, before.unannounced)
		maps.Copy(s.record.Topics, before.topics())
		return
	}
	recovery := s.conn.resumableState()
	for _, t := range subscribed {
		if _, own := recovery.ownTopics[t.Name]; own {
			continue
		}
		if grant := s.conn.grantedTopic(t); s.admits(t.Name, grant) == nil {
			s.unannounced[t.Name] = struct{}{}
			s.record.Topics[t.Name] = grant
		}
	}
	recovery.ownTopics = nil
}
