package session

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/internal/present"
	"github.com/penstock-go/penstock/internal/rules"
)

// A Session is that of one connection. The record in the store says which connection has the session:
// the node of another one takes it over by replacing the record.
type Session struct {
	node       *Node
	conn       *Conn
	id         string
	memberID   string // the Member.ConnID of its connections
	generation uint64 // record.Generation

	mu             sync.Mutex
	state          state
	reason         EndReason // of ended
	token          string    // for the client
	unacknowledged string    // the correlation ID of the resume, until the client acknowledges the answer
	since          uint32    // Identity.Since

	record  record
	stored  []byte // the stored record
	version uint64 // of stored
	settled bool   // nothing is stored any more

	// Of a connection that has been closed: see waiting.go.
	until  time.Time        // when the client can no longer resume; zero while the connection is open
	away   *present.Absence // for which the session waits
	leaves bool             // it is not present meanwhile
	unused bool             // it waits only until the record has been stored

	lacking []string // of moved: the topics in which the session does not go on

	// The user whose revocations the session follows, and whether it may have missed a change.
	revocationsOf User
	mustCatchUp   bool

	// See save.go.
	dirty, saving bool
	saved         chan struct{} // closed at the end of the saving; nil if no one waits
	backoff       rules.Backoff
	place         int32              // in Node.timers, until the next save
	cancelFirst   context.CancelFunc // of StoreFirst; nil when the store has answered
}

// A state is what a connection has to do with its session.
type state uint8

const (
	claiming   state = iota // the store has not answered whether the connection has the session
	open                    // it has the session
	detached                // it has been closed, and its client may come back
	superseded              // another connection has the session, and this one stays in the topics for it
	moved                   // another connection has the session, and is in the topics
	ended                   // no connection has the session: see reason
	abandoned               // the connection has another session, or has never had this one
)

// handle handles an event, one of the methods that return what the connection must do then.
func (s *Session) handle(event func() []Action) {
	s.mu.Lock()
	actions := event()
	s.mu.Unlock()
	for _, a := range actions {
		s.conn.Act(s, a)
	}
}

// Begin returns a new session of a connection, which [Session.StoreFirst] stores. It has the topics of
// the session that the connection had before, which ends if it has not; without one, those that have
// been granted, as far as there is room.
func (n *Node) Begin(c *Conn, id Identity, before *Session, granted map[string]Grant) *Session {
	s := &Session{node: n, conn: c, id: rand.Text(), memberID: c.ID, generation: 1, state: open, saving: true, dirty: true}
	s.token, s.record.Secret = newToken(s.id)
	s.record.Generation, s.record.ConnID, s.since = s.generation, c.ID, id.Since
	s.record.setIdentity(id)
	s.takeTopicsLocked(nil, before.replace(), granted) // no other goroutine knows s
	n.add(s)
	return s
}

// replace ends the session of a connection that gets another one, and returns its topics. s may be nil.
func (s *Session) replace() (topics map[string]Grant) {
	if s == nil {
		return nil
	}
	s.handle(s.abandonLocked)
	return s.Topics()
}

// Disconnected says that the connection has been closed, after its identity has changed for the last
// time: final if its client must not come back, and leaving if it is not present meanwhile.
func (s *Session) Disconnected(final, leaving bool) {
	s.handle(func() []Action { return s.disconnectLocked(final, leaving) })
}

func (s *Session) disconnectLocked(final, leaving bool) []Action {
	if !s.until.IsZero() || s.state == abandoned {
		return nil
	}
	if final {
		s.discardLocked()
	}
	if s.cancelFirst != nil {
		s.cancelFirst()
	}
	s.until = time.Now().Add(s.node.config.Within)
	s.changedLaterLocked()
	switch s.state {
	case open:
		s.state = detached
		s.waitLocked(leaving)
	case superseded: // the member stays until the other connection is present
		s.waitLocked(false)
	case ended:
		s.forgetLocked()
		return []Action{{Kind: ReportEnd, Reason: s.reason}}
	default:
		s.forgetLocked()
	}
	return nil
}

// Discard ends the session: the client cannot resume it.
func (s *Session) Discard() {
	s.handle(func() []Action {
		s.discardLocked()
		if s.state != ended {
			return nil
		}
		return s.endLocked(Closed)
	})
}

func (s *Session) discardLocked() {
	switch s.state {
	case open, detached:
		s.state, s.reason = ended, Closed
		s.changedLocked()
	case ended:
		s.reason = Closed
	}
}

// supersedeLocked: another connection has got the session. A connection that has it stays in its topics
// until moveLocked.
func (s *Session) supersedeLocked() []Action {
	isOpen := s.until.IsZero()
	switch s.state {
	case claiming:
		s.settleLocked(moved)
		return []Action{{Kind: GiveUp}}
	case open, detached, ended:
		s.settleLocked(superseded)
		if isOpen {
			return []Action{{Kind: StopServing}}
		}
	case abandoned:
		s.settleLocked(abandoned)
	}
	return nil
}

// moveLocked: another connection is in the topics, except those that the session lacks now.
func (s *Session) moveLocked(lacking []string) []Action {
	if s.state == moved || s.state == abandoned {
		return nil
	}
	s.settleLocked(moved)
	s.lacking = lacking
	if !s.until.IsZero() {
		return s.forgetLocked()
	}
	return []Action{{Kind: GiveUp}}
}

// loseLocked: the store has no record any more.
func (s *Session) loseLocked() {
	if s.state == open || s.state == detached {
		s.reason = Expired
		s.state = ended
	}
	s.settleLocked(s.state)
}

// abandonLocked: the connection has another session, or its client does not learn of this one.
func (s *Session) abandonLocked() []Action {
	s.settled = s.settled || s.state == claiming
	s.state = abandoned
	s.changedLocked()
	return s.forgetLocked()
}

// settleLocked leaves the record as it is from now on. If the connection has been closed, and waits for
// nothing else, the node forgets the session.
func (s *Session) settleLocked(next state) {
	s.state, s.settled = next, true
	s.node.timers.Stop(s)
	if !s.until.IsZero() && !s.waitsLocked() {
		s.node.remove(s)
	}
}

// SetIdentity follows a change of the connection's identity.
func (s *Session) SetIdentity(id Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = id.Since
	s.record.setIdentity(id)
	s.changedLocked()
}

// Acknowledge says that the client has received the answer to the resume with this correlation ID, and
// with it the new token: the previous one becomes invalid, on other nodes a moment later.
func (s *Session) Acknowledge(correlationID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if correlationID != "" && s.unacknowledged == correlationID {
		s.unacknowledged, s.record.Previous = "", nil
		s.changedLaterLocked()
	}
}

// ID returns the first part of the token, which all connections of the session have in common.
func (s *Session) ID() string { return s.id }

// Generation returns the number of the connection among those that the session has had.
func (s *Session) Generation() uint64 { return s.generation }

// MemberID returns the ID with which the connections of the session are present.
func (s *Session) MemberID() string { return s.memberID }

// Token returns what the client needs to resume the session, or false if it cannot.
func (s *Session) Token() (token string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token, !s.isOverLocked()
}

// IsOver reports whether the client cannot resume the session on another connection: it has ended, or
// belongs to another one.
func (s *Session) IsOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isOverLocked()
}

func (s *Session) isOverLocked() bool { return s.state > detached }

// TakenOver reports whether another connection has the session, and this one has no other.
func (s *Session) TakenOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == superseded || s.state == moved
}

// GoesOn reports whether another connection is present in a topic in place of this one.
func (s *Session) GoesOn(topic string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (s.state == superseded || s.state == moved) && !slices.Contains(s.lacking, topic)
}
