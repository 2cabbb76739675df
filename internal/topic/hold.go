package topic

import (
	"sync"
	"time"
)

// This file keeps members present that their node does not announce any more although they may come
// back: because the node has ended, or because another node announces them, from which nothing has
// arrived.

// takeOverHold is how long a member stays that its node does not announce any more. All nodes agree
// again within five seconds after a fault (internal/cluster/presence), so what has replaced it is
// known by then.
const takeOverHold = 6 * time.Second

// goneFor is how long a node is remembered that has ended: the changes that this causes may be
// reported late.
const goneFor = time.Minute

// heldMembers are the members of all topics that are held, and the nodes that have ended.
type heldMembers struct {
	mu   sync.Mutex // may be acquired under Topic.mu; nothing is called under it
	all  map[*heldMember]struct{}
	gone map[string]time.Time
}

// A heldMember has no connection that a node announces. Its topic's lock guards member.conns.
type heldMember struct {
	topic  *Topic
	member *member
	user   User
	node   string        // that has announced it; "" is this node
	stays  time.Duration // if that node has ended
	timer  *time.Timer
}

// holdLocked lets a member without connections stay. It must be called with t.mu held.
func (ts *Topics) holdLocked(t *Topic, m *member, node string, stays time.Duration) {
	h := &heldMember{topic: t, member: m, user: User{m.TenantID, m.UserID}, node: node, stays: stays}
	ts.held.add(h, func() { ts.endHeld(h) })
	t.presence.hold(h)
}

func (p *presence) hold(h *heldMember) {
	if p.held == nil {
		p.held = map[string]*heldMember{}
	}
	p.held[h.member.ConnID] = h
}

// releaseHeldLocked forgets that a member is held, because a node announces it again, or it leaves.
// It must be called with t.mu held.
func (ts *Topics) releaseHeldLocked(t *Topic, m *member) {
	h := t.presence.held[m.ConnID]
	if h == nil {
		return
	}
	delete(t.presence.held, m.ConnID)
	ts.held.remove(h)
	h.timer.Stop()
}

// endHeld ends the presence of a member that is still held.
func (ts *Topics) endHeld(h *heldMember) {
	t := h.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.presence.held[h.member.ConnID] == h {
		ts.leaveLocked(t, h.member)
	}
}

// add adds a member, and sets the timer until its end.
func (hs *heldMembers) add(h *heldMember, end func()) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.all == nil {
		hs.all = map[*heldMember]struct{}{}
	}
	hs.all[h] = struct{}{}
	d := min(h.stays, takeOverHold)
	if at, ok := hs.gone[h.node]; ok && time.Since(at) < goneFor {
		d = h.stays
	}
	h.timer = time.AfterFunc(d, end)
}

func (hs *heldMembers) remove(h *heldMember) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	delete(hs.all, h)
}

// NodeLeft holds the members of a node that has ended until their clients cannot come back.
func (ts *Topics) NodeLeft(node string) { ts.held.nodeLeft(node) }

// nodeLeft holds the members of a node that has ended until their clients cannot come back. It may
// be called before or after their changes are reported.
func (hs *heldMembers) nodeLeft(node string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.gone == nil {
		hs.gone = map[string]time.Time{}
	}
	for name, at := range hs.gone {
		if time.Since(at) >= goneFor {
			delete(hs.gone, name)
		}
	}
	hs.gone[node] = time.Now()
	for h := range hs.all {
		if h.node == node && h.timer.Stop() {
			h.timer.Reset(h.stays)
		}
	}
}

// nodeReturned notes that a node is there.
func (hs *heldMembers) nodeReturned(node string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	delete(hs.gone, node)
}

// of returns the members of a user.
func (hs *heldMembers) of(user User) (members []*heldMember) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for h := range hs.all {
		if h.user == user {
			members = append(members, h)
		}
	}
	return members
}
