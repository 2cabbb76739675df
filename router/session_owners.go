package router

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/internal/wire"
)

// This file makes a session belong to one connection at a time. The store decides in which order
// connections get it, and numbers them (sessionRecord.Generation). The one that has got it
// announces its generation to all nodes twice: at once, so that earlier ones handle no further
// messages, and when it has subscribed to the topics, so that they leave these.

// sessionOwners are the sessions of which this node must know when another connection claims them:
// those that its connections have, those that they are claiming, and those whose connections have
// been closed.
type sessionOwners struct {
	mu   sync.Mutex // may be acquired under session.mu; nothing is called under it
	byID map[string][]*session
}

// add adds a session, before the store can have it as that of its connection.
func (o *sessionOwners) add(s *session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID == nil {
		o.byID = map[string][]*session{}
	}
	o.byID[s.id] = append(o.byID[s.id], s)
}

// remove removes a session that does not matter to others any more. It may have been removed
// before.
func (o *sessionOwners) remove(s *session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := slices.DeleteFunc(o.byID[s.id], func(other *session) bool { return other == s })
	if len(of) > 0 {
		o.byID[s.id] = of
	} else {
		delete(o.byID, s.id)
	}
}

// A claimNotice says that a connection has claimed a session: its generation is the latest one.
type claimNotice struct {
	sessionID  string
	generation uint64
}

// superseded returns the sessions of connections that had the session before, or may have it
// because the store has not answered. A claim of the same generation has failed, and its connection
// may try again.
func (o *sessionOwners) superseded(n claimNotice) []*session {
	o.mu.Lock()
	defer o.mu.Unlock()
	var ended []*session
	for _, s := range o.byID[n.sessionID] {
		if s.generation < n.generation {
			ended = append(ended, s)
		}
	}
	return ended
}

// notice returns what others must know of a session that the connection has claimed.
func (s *session) notice() claimNotice { return claimNotice{s.id, s.generation} }

// announceClaim makes earlier connections stop, on all nodes. It reports whether there may be some
// on other nodes. Their nodes notice a lost packet when they store the record again.
func (r *Router) announceClaim(s *session, k *sessionClaim) (elsewhere bool) {
	// Unless the client has acknowledged that owner, an earlier one may not know yet that it has
	// lost the session.
	elsewhere = k.unacknowledged
	if k.owner != s.conn.id {
		elsewhere = elsewhere || !slices.ContainsFunc(r.owners.superseded(s.notice()), func(s *session) bool { return s.conn.id == k.owner })
	}
	r.stopSuperseded(s.notice())
	if elsewhere {
		_ = r.publishToNodes(func() []byte { return s.notice().packet(packetSessionClaimed) })
	}
	return elsewhere
}

// announceMoved makes earlier connections leave the topics. The session goes on without those that
// have ended.
func (r *Router) announceMoved(s *session, ended []string, elsewhere bool) {
	r.endSuperseded(s.notice(), ended)
	if !elsewhere {
		return
	}
	_ = r.publishToNodes(func() []byte {
		packet := s.notice().packet(packetSessionMoved)
		for _, topic := range ended {
			packet = wire.AppendString(packet, topic)
		}
		return packet
	})
}

func (n claimNotice) packet(kind byte) []byte {
	return binary.AppendUvarint(wire.AppendString([]byte{kind}, n.sessionID), n.generation)
}

// receiveClaim handles a packet of announceClaim or announceMoved.
func (r *Router) receiveClaim(kind byte, packet []byte) {
	id, rest, ok := wire.CutString(packet)
	if !ok {
		return
	}
	generation, size := binary.Uvarint(rest)
	if size <= 0 {
		return
	}
	n := claimNotice{sessionID: id, generation: generation}
	if kind == packetSessionClaimed {
		r.stopSuperseded(n)
		return
	}
	var ended []string
	for rest = rest[size:]; len(rest) > 0; {
		var topic string
		if topic, rest, ok = wire.CutString(rest); !ok {
			return
		}
		ended = append(ended, topic)
	}
	r.endSuperseded(n, ended)
}

func (r *Router) stopSuperseded(n claimNotice) {
	for _, s := range r.owners.superseded(n) {
		s.supersede()
	}
}

func (r *Router) endSuperseded(n claimNotice, ended []string) {
	for _, s := range r.owners.superseded(n) {
		s.move(ended)
	}
}

// supersede ends what a connection does for a session that another one has: it rejects messages
// from now on. It stays subscribed, and its member present, until the other connection is, which
// calls move. A connection that has only claimed the session ends at once.
func (s *session) supersede() {
	s.mu.Lock()
	before := s.takenOver
	s.takeOverLocked()
	s.mu.Unlock()
	if !before {
		s.stopServing()
	}
}

// takeOverLocked notes that another connection has the session.
func (s *session) takeOverLocked() {
	s.takenOver, s.moved = true, s.moved || s.claiming
	s.finishLocked()
}

// stopServing makes a connection reject messages whose session another one has.
func (s *session) stopServing() {
	switch c := s.conn; {
	case s.isClaiming():
		c.drainSuperseded()
	case c.session() == s:
		c.draining.CompareAndSwap(notDraining, drainingSuperseded)
		time.AfterFunc(supersededWait, func() { c.closeIfSession(s) })
	}
}

func (s *session) isClaiming() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claiming
}

// move ends the connection of a session that has been superseded, and its presence. The session has
// ended topics, and goes on in others.
func (s *session) move(ended []string) {
	s.supersede()
	s.mu.Lock()
	s.moved, s.ended = true, ended
	s.mu.Unlock()
	if c := s.conn; !c.router.leaveAway(s) && c.session() == s {
		c.drainSuperseded()
	}
}

func (s *session) isSuperseded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takenOver
}

// goesOn reports whether another connection is present in a topic in place of this one.
func (c *Conn) goesOn(topic string) bool {
	s := c.session()
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takenOver && !slices.Contains(s.ended, topic)
}

// closeIfSession closes a connection that has been superseded, unless it has another session
// meanwhile. Its member stays until move is called.
func (c *Conn) closeIfSession(s *session) {
	if c.session() == s {
		c.closeSuperseded()
	}
}
