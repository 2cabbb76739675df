package session

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/present"
)

// This file waits for the clients of closed connections: until a session ends, or another connection
// has it, the closed one stays present in its topics. internal/present has the clock, and bounds how many wait: each is
// a record in the store until its time is up, and a client can leave one behind with every connection.

// expiryGrace is how much later than its time a session is taken for expired: a client that has resumed
// it at the last moment has then been stored as its owner.
const expiryGrace = time.Second

// waitLocked begins to wait. A browser closes a connection with 1001 when its page is left: that member
// is gone.
func (s *Session) waitLocked(leaves bool) {
	n := s.node
	s.leaves = leaves
	s.away = &present.Absence{
		User: present.User(s.record.user()), Of: s.id,
		Client: &present.Client{Address: s.conn.Address, Generation: s.generation, Since: s.since},
		Act:    s.act,
	}
	n.config.Away.Wait(s.away, max(0, s.record.lifetime(n.config.Within, time.Now()))+expiryGrace)
}

func (s *Session) waitsLocked() bool { return s.node.config.Away.Waits(s.away) }

// act does what the table of those who are away requires, also if the session has ended or moved since.
func (s *Session) act(_ *present.Absence, do present.Action) {
	switch do.Kind {
	case present.Expire:
		s.node.endWaiting(s.id, s.conn.ID, Expired)
	case present.Evict:
		s.node.endWaiting(s.id, s.conn.ID, limitedBy(do))
	case present.End:
		s.handle(func() []Action { return s.endLocked(AccessEnded) })
	default:
		s.conn.Act(s, Action{Kind: LeaveTopics, Topics: do.Topics})
	}
}

// forgetLocked ends the waiting, and makes the node forget the session: one that has ended, when its record
// has been deleted, because until then, no connection of the node may claim it.
func (s *Session) forgetLocked() []Action {
	topics := s.node.config.Away.Forget(s.away)
	if s.state != ended || s.settled {
		s.node.remove(s)
	}
	if topics == nil {
		return nil
	}
	return []Action{{Kind: LeaveTopics, Topics: topics}}
}

// endLocked ends a session whose client has not come back.
func (s *Session) endLocked(reason EndReason) []Action {
	if !s.waitsLocked() {
		return nil
	}
	actions := s.forgetLocked()
	switch s.state {
	case superseded:
		return actions
	case detached:
		s.reason = reason
		s.settleLocked(ended)
	}
	return append(actions, Action{Kind: ReportEnd, Reason: reason})
}

// Away returns what waits for the client to come back after the connection was closed, and stays present meanwhile. It
// is nil if nothing does. s may be nil.
func (s *Session) Away() *present.Absence {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaves || !s.waitsLocked() {
		return nil
	}
	return s.away
}

// ForgetIfUnused ends the waiting for the end of a session that is not reported, if it is present in no
// topic. s may be nil.
func (s *Session) ForgetIfUnused() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unused = !s.node.config.WatchesEnds
	s.forgetUnusedLocked()
}

// forgetUnusedLocked makes the node forget a session for which nothing waits. Until its record has been
// stored, only the node has its latest grants, which a claim needs.
func (s *Session) forgetUnusedLocked() {
	if !s.unused || s.saving || s.dirty && !s.settled || !s.waitsLocked() {
		return
	}
	n, connID := s.node, s.conn.ID // not the session, which need not stay in memory with its record
	evict := func(a *present.Absence, do present.Action) { n.endWaiting(a.Of, connID, limitedBy(do)) }
	if n.config.Away.Unused(s.away, evict) {
		s.away = nil
		s.forgetLocked()
	}
}

func limitedBy(evict present.Action) EndReason {
	if evict.PerAddress {
		return LimitedPerAddress
	}
	return LimitedPerUser
}

// endAttempts bounds how often a record is deleted that its connection has stored meanwhile.
const endAttempts = 5

// endWaiting ends a session whose client has not come back to any node: because its time is up, or because it is limited,
// which deletes the record. If the store does not answer, that expires by itself.
func (n *Node) endWaiting(id, connID string, reason EndReason) {
	if !n.saving.begin() {
		return
	}
	defer n.saving.end()
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	for range endAttempts {
		rec, value, err := n.load(ctx, id)
		resumed := value.Version != 0 && rec.ConnID != connID
		if reason >= LimitedPerUser && value.Version != 0 && !resumed {
			_, err = n.config.Store.StoreValue(ctx, recordKey(id), nil, value.Version, 0)
		}
		if s := n.of(id, connID); s != nil {
			s.handle(func() []Action { return s.endIfAwayLocked(reason, resumed, err) })
		}
		if errors.CodeOf(err) != errors.Aborted { // the last save of the connection may have come between
			return
		}
	}
}

func (s *Session) endIfAwayLocked(reason EndReason, resumed bool, err error) []Action {
	switch {
	case !s.waitsLocked():
	case err == nil && resumed: // the member has waited until the other connection is present
		return s.moveLocked(nil)
	case err == nil:
		return s.endLocked(reason)
	case reason == Expired:
		s.node.config.Away.Wait(s.away, s.node.refreshInterval())
	}
	return nil
}
