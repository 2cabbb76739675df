package presence

import (
	"time"

	"github.com/penstock-go/penstock/internal/present"
)

// This file keeps members present whose clients may come back: those of closed connections of this node, and those that
// no node announces, because theirs has ended, or nothing has arrived from the next one. internal/present has the clock.

// Close prepares that the member of a connection which is closed stays. It reports false if it must leave: the connection
// has not joined, or goesOn is set, with which another connection may have the member already, and one has it.
func (p *Members[C]) Close(c C, goesOn bool) (e Effects, mayStay bool) {
	m := p.local[c]
	if m == nil || m.conns > 1 && goesOn {
		return e, false
	}
	p.endAway(&e, m.ConnID) // one is enough
	return e, true
}

// Stay lets the member of a closed connection stay, of which Close has just reported that it may. away is the absence
// of its client.
func (p *Members[C]) Stay(c C, away *present.Absence) {
	if p.away == nil {
		p.away = map[string]awayConn[C]{}
	}
	p.away[p.local[c].ConnID] = awayConn[C]{c, away}
}

// endAway ends the presence of a closed connection whose member another connection has.
func (p *Members[C]) endAway(e *Effects, connID string) {
	if a, ok := p.away[connID]; ok {
		delete(p.away, connID)
		p.removeLocal(e, a.conn, false)
		e.TakenOver = a.away
	}
}

// hold lets a member without connections stay.
func (p *Members[C]) hold(e *Effects, m *member, node string, stays time.Duration) {
	h := &present.Absence{User: present.User{TenantID: m.TenantID, UserID: m.UserID}, Of: node, Stays: stays}
	if p.held == nil {
		p.held = map[string]*present.Absence{}
	}
	p.held[m.ConnID] = h
	e.Held = append(e.Held, Held{m, h, min(stays, TakeOverHold)})
}

// HoldEnded ends the presence of a member whose time is up, unless a node has announced it meanwhile.
func (p *Members[C]) HoldEnded(m *member, h *present.Absence) (e Effects) {
	if p.held[m.ConnID] == h {
		p.leave(&e, m)
	}
	return e
}

// releaseHeld forgets that a member is held, because a node announces it again, or it leaves.
func (p *Members[C]) releaseHeld(e *Effects, m *member) {
	if h := p.held[m.ConnID]; h != nil {
		delete(p.held, m.ConnID)
		e.Released = append(e.Released, h)
	}
}
