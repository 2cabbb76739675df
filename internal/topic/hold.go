package topic

import (
	"time"

	"github.com/penstock-go/penstock/internal/present"
)

// This file keeps members present whose clients may come back: those of closed connections of this node, and those that
// no node announces, because theirs has ended, or nothing has arrived from the next one. internal/present has the clock.

// takeOverHold is how long a member stays that its node does not announce any more. All nodes agree
// again within five seconds after a fault (internal/cluster/presence), so what has replaced it is
// known by then.
const takeOverHold = 6 * time.Second

// An awayConn is a closed connection of this node with which a member waits for its client.
type awayConn struct {
	conn *Subscriber
	away *present.Absence
}

// Stay ends what a closed connection receives from the topic, and reports whether its member stays there for the client,
// until the time of PresenceGrace or of the session is up, or another connection has the member. away is the absence of
// the client, or nil if it leaves now. If goesOn is set, another connection may have the member already.
func (ts *Topics) Stay(t *Topic, c *Subscriber, away *present.Absence, goesOn bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.silenceLocked(c)
	m, joined := t.presence.localMember(c)
	p := t.presence
	if !joined || p.local[c].conns > 1 && goesOn {
		return false
	}
	ts.endAwayLocked(t, m.ConnID) // one is enough
	if !ts.config.Away.Stay(away, t.Name, t.Pattern.PresenceGrace) {
		return false
	}
	if p.away == nil {
		p.away = map[string]awayConn{}
	}
	p.away[m.ConnID] = awayConn{c, away}
	return true
}

// endAwayLocked ends the presence of a closed connection whose member another connection has. It
// needs t.mu.
func (ts *Topics) endAwayLocked(t *Topic, connID string) {
	if a, ok := t.presence.away[connID]; ok {
		delete(t.presence.away, connID)
		ts.removeLocalMemberLocked(t, a.conn, false)
		ts.config.Away.TakenOver(a.away, t.Name)
	}
}

// holdLocked lets a member without connections stay. It must be called with t.mu held.
func (ts *Topics) holdLocked(t *Topic, m *member, node string, stays time.Duration) {
	h := &present.Absence{User: present.User{TenantID: m.TenantID, UserID: m.UserID}, Of: node, Stays: stays}
	h.Act = func(h *present.Absence, _ present.Action) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.presence.held[m.ConnID] == h {
			ts.leaveLocked(t, m)
		}
	}
	if t.presence.held == nil {
		t.presence.held = map[string]*present.Absence{}
	}
	t.presence.held[m.ConnID] = h
	ts.config.Away.Hold(h, t.Name, min(stays, takeOverHold))
}

// releaseHeldLocked forgets that a member is held, because a node announces it again, or it leaves.
// It must be called with t.mu held.
func (ts *Topics) releaseHeldLocked(t *Topic, m *member) {
	ts.config.Away.Forget(t.presence.held[m.ConnID])
	delete(t.presence.held, m.ConnID)
}
