package session

import (
	"context"
	"slices"
	"time"

	"github.com/penstock-go/penstock/internal/topicname"
)

// This file waits for the clients of closed connections: until a session ends, or another connection
// has it, the closed one stays present in its topics.

// expiryGrace is how much later than its time a session is taken for expired: a client that has resumed
// it at the last moment has then been stored as its owner.
const expiryGrace = time.Second

// waitLocked begins to wait. A browser closes a connection with 1001 when its page is left: that member
// is gone.
func (s *Session) waitLocked(leaves bool) {
	within := s.record.lifetime(s.node.config.Within, time.Now())
	s.waiting, s.leaves = true, leaves
	s.waitTimer = time.AfterFunc(max(0, within)+expiryGrace, s.expire)
	s.node.wait(s)
}

// forgetLocked ends the waiting, and makes the node forget the session: one that has ended, when its record
// has been deleted, because until then, no connection of the node may claim it.
func (s *Session) forgetLocked() []Action {
	if s.waiting {
		s.waiting = false
		s.waitTimer.Stop()
		s.node.stopWaiting(s)
	}
	if s.state != ended || s.settled {
		s.node.remove(s)
	}
	return s.leaveLocked(func(string) bool { return true })
}

// endLocked ends a session whose client has not come back.
func (s *Session) endLocked(reason EndReason) []Action {
	if !s.waiting {
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

// StayPresent lets a closed connection stay present in a topic until the session ends or another
// connection has it. It reports false if the connection leaves now. s may be nil.
func (s *Session) StayPresent(topic string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.waiting || s.leaves {
		return false
	}
	s.present = append(s.present, topic)
	return true
}

// ForgetIfUnused ends the waiting for the end of a session that is not reported, after the last
// StayPresent. s may be nil.
func (s *Session) ForgetIfUnused() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unused = len(s.present) == 0 && !s.node.config.WatchesEnds
	s.forgetUnusedLocked()
}

// forgetUnusedLocked makes the node forget a session for which nothing waits. Until its record has been
// stored, only the node has its latest grants, which a claim needs.
func (s *Session) forgetUnusedLocked() {
	if s.unused && s.waiting && !s.saving && (!s.dirty || s.settled) {
		s.forgetLocked()
	}
}

// expire ends a session whose client has not come back to any node. If the store does not answer, it is
// asked again later.
func (s *Session) expire() {
	n := s.node
	if n.saving.isClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	rec, value, err := n.load(ctx, s.id)
	s.handle(func() []Action {
		switch {
		case !s.waiting:
			return nil
		case err != nil:
			s.waitTimer.Reset(n.refreshInterval())
			return nil
		case value.Version != 0 && rec.ConnID != s.conn.ID: // another connection has resumed it
			return s.moveLocked(nil)
		default:
			return s.endLocked(Expired)
		}
	})
}

// EndWaiting ends the sessions of a user whose clients are away, if the identity was authenticated before
// the user lost the access.
func (n *Node) EndWaiting(user User, before func(since uint32) bool) {
	for _, s := range n.waitingOf(user, before) {
		s.handle(func() []Action { return s.endLocked(AccessEnded) })
	}
}

// EndPresence ends the presence in topics of a user whose clients are away.
func (n *Node) EndPresence(user User, topics topicname.Matcher) {
	for _, s := range n.waitingOf(user, func(uint32) bool { return true }) {
		s.handle(func() []Action { return s.leaveLocked(topics.Matches) })
	}
}

// leaveLocked ends the presence in topics.
func (s *Session) leaveLocked(leaves func(topic string) bool) []Action {
	var left []string
	s.present = slices.DeleteFunc(s.present, func(topic string) bool {
		if !leaves(topic) {
			return false
		}
		left = append(left, topic)
		return true
	})
	if left == nil {
		return nil
	}
	return []Action{{Kind: LeaveTopics, Topics: left}}
}

func (n *Node) waitingOf(user User, before func(since uint32) bool) []*Session {
	return slices.DeleteFunc(n.allWaiting(), func(s *Session) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.record.user() != user || !before(s.since)
	})
}
