package topic

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/present"
	"github.com/penstock-go/penstock/internal/protocol"
)

// presence holds the members of a topic that this node knows. A nil *presence has none. It is guarded
// by the topic's lock.
type presence struct {
	tracked bool               // a connection of this node has joined the topic, or has asked for its members
	members map[string]*member // by Member.ConnID
	local   map[*Subscriber]*member
	remote  map[remoteMember]*member
	held    map[string]*present.Absence // by Member.ConnID: those that no node announces
	away    map[string]awayConn         // by Member.ConnID
	feed    *feed                       // nil until a client asks for presence
}

// A remoteMember is a member as another node announces it.
type remoteMember struct{ node, id string }

// A member is present with one connection or, while its session moves to another one, with several.
type member struct {
	protocol.Member

	conns   int32 // on all nodes
	local   int32 // on this node
	staysMs int32 // as this node announces it, or notAnnounced
}

// Members returns the members of a topic on all nodes, sorted by ConnID.
func (ts *Topics) Members(name string) []protocol.Member {
	t := ts.lock(name)
	if t == nil {
		return nil
	}
	defer t.mu.Unlock()
	all := t.presence.all()
	slices.SortFunc(all, func(a, b protocol.Member) int { return strings.Compare(a.ConnID, b.ConnID) })
	return all
}

// MemberCount returns the number of members of a topic on all nodes.
func (ts *Topics) MemberCount(name string) int {
	t := ts.lock(name)
	if t == nil {
		return 0
	}
	defer t.mu.Unlock()
	return t.presence.count()
}

// Member returns the member of a connection, if that has joined.
func (t *Topic) Member(c *Subscriber) (m protocol.Member, joined bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.presence.localMember(c)
}

// all returns the members on all nodes, in no particular order. It returns nil only without presence.
func (p *presence) all() []protocol.Member {
	if p == nil {
		return nil
	}
	all := make([]protocol.Member, 0, len(p.members))
	for _, m := range p.members {
		all = append(all, m.Member)
	}
	return all
}

// count returns the number of members.
func (p *presence) count() int {
	if p == nil {
		return 0
	}
	return len(p.members)
}

// localMember returns the member of a connection, if that has joined.
func (p *presence) localMember(c *Subscriber) (m protocol.Member, joined bool) {
	if p == nil || p.local[c] == nil {
		return protocol.Member{}, false
	}
	return p.local[c].Member, true
}

// trackLocked returns the presence of a topic, whose members on other nodes this node knows from then on.
func (ts *Topics) trackLocked(t *Topic) *presence {
	if t.presence == nil {
		t.presence = new(presence)
	}
	if p := t.presence; !p.tracked {
		p.tracked, p.members = true, map[string]*member{}
		p.local, p.remote = map[*Subscriber]*member{}, map[remoteMember]*member{}
		ts.node.Track(t.Name)
	}
	return t.presence
}

// JoinLocked adds a local member, or sets its info if that is empty. c must subscribe to t, and its
// lock must be held.
func (ts *Topics) JoinLocked(t *Topic, c *Subscriber, m Announced) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, ok := t.presence.localMember(c); ok {
		m.Info = cmp.Or(old.Info, m.Info)
		ts.updateMemberLocked(t, c, old, m)
		return
	}
	ts.trackLocked(t)
	ts.addLocalMemberLocked(t, c, m)
}

// RejoinLocked replaces the member of a connection that is present in a topic, because its identity or
// its session has changed. It sets the info unless that is empty. c must subscribe to t, and its lock
// must be held. If the identity has changed, the broker reports the replacement to other nodes as
// left and joined.
func (ts *Topics) RejoinLocked(t *Topic, c *Subscriber, m Announced) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, ok := t.presence.localMember(c); ok {
		m.Info = cmp.Or(m.Info, old.Info)
		ts.updateMemberLocked(t, c, old, m)
	}
}

// updateMemberLocked replaces a local member, which leaves and joins, unless neither its info nor
// the identity of c, nor the session to which c belongs, has changed. It needs t.mu.
func (ts *Topics) updateMemberLocked(t *Topic, c *Subscriber, old protocol.Member, m Announced) {
	current := t.presence.local[c]
	switch staysMs := m.staysMs(); {
	case old.ConnID != m.ConnID:
		ts.addLocalMemberLocked(t, c, m) // first: it may be the same client
		ts.dropLocalMemberLocked(t, current, true)
	case old != m.Member || staysMs > current.staysMs:
		ts.setMember(t, current, m.Member)
		ts.announceLocked(t, current, max(staysMs, current.staysMs))
	}
}

// addLocalMemberLocked needs t.mu.
func (ts *Topics) addLocalMemberLocked(t *Topic, c *Subscriber, a Announced) {
	m, staysMs := a.Member, a.staysMs()
	before := t.presence.members[m.ConnID]
	if before != nil {
		m.Info, staysMs = cmp.Or(m.Info, before.Info), max(staysMs, before.staysMs)
	}
	isKnown := before != nil && before.Member == m && before.staysMs == staysMs // to the other nodes, too
	added := ts.addMember(t, m)
	added.local++
	t.presence.local[c] = added
	if !isKnown {
		ts.announceLocked(t, added, staysMs)
	}
	ts.endAwayLocked(t, m.ConnID)
}

// addMember adds a connection to a member, which joins with the first one.
func (ts *Topics) addMember(t *Topic, m protocol.Member) *member {
	added := t.presence.members[m.ConnID]
	if added == nil {
		added = &member{Member: m, staysMs: notAnnounced}
		t.presence.members[m.ConnID] = added
		ts.notifyPresenceLocked(t, m, true)
	}
	ts.releaseHeldLocked(t, added)
	added.conns++
	ts.setMember(t, added, m)
	return added
}

// setMember replaces what is known of a member, which leaves and joins if that changes.
func (ts *Topics) setMember(t *Topic, old *member, m protocol.Member) {
	if old.Member != m {
		ts.notifyPresenceLocked(t, old.Member, false)
		old.Member = m
		ts.notifyPresenceLocked(t, m, true)
	}
}

// removeMember removes a connection that a node has announced from a member. With the last one, the
// member leaves, or is held if it stays.
func (ts *Topics) removeMember(t *Topic, m *member, node string, stays time.Duration) {
	switch m.conns--; {
	case m.conns > 0:
	case stays > 0:
		ts.holdLocked(t, m, node, stays)
	default:
		ts.leaveLocked(t, m)
	}
}

// leaveLocked ends the presence of a member without connections.
func (ts *Topics) leaveLocked(t *Topic, m *member) {
	ts.releaseHeldLocked(t, m)
	delete(t.presence.members, m.ConnID)
	ts.notifyPresenceLocked(t, m.Member, false)
}

// removeLocalMemberLocked removes a connection, after which the member leaves unless another
// connection has it. Unless that is final, one on another node may have it that is not known yet.
// It needs t.mu.
func (ts *Topics) removeLocalMemberLocked(t *Topic, c *Subscriber, final bool) {
	if t.presence == nil || t.presence.local[c] == nil {
		return
	}
	m := t.presence.local[c]
	delete(t.presence.local, c)
	if t.presence.away[m.ConnID].conn == c {
		delete(t.presence.away, m.ConnID)
	}
	ts.dropLocalMemberLocked(t, m, final)
}

// dropLocalMemberLocked removes one of the connections of a member.
func (ts *Topics) dropLocalMemberLocked(t *Topic, m *member, final bool) {
	if m.local--; m.local == 0 {
		ts.withdrawLocked(t, m, final)
	}
	if final {
		ts.removeMember(t, m, "", 0)
	} else {
		ts.removeMember(t, m, "", takeOverHold)
	}
}

// EndPresence ends the presence of a connection that remains subscribed, if it is present.
func (ts *Topics) EndPresence(t *Topic, c *Subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ts.removeLocalMemberLocked(t, c, true)
}

// untrackLocked ends the presence of a topic without subscribers. It needs t.mu. It keeps the local
// members that have not left yet: remove decreases topic.subscriptions before it acquires t.mu, so
// others may leave after the last one.
func (ts *Topics) untrackLocked(t *Topic) {
	p := t.presence
	if p == nil || !p.tracked {
		return
	}
	ts.node.Untrack(t.Name)
	for key, m := range p.remote {
		ts.removeMember(t, m, key.node, 0)
	}
	for connID := range p.held {
		ts.leaveLocked(t, p.members[connID])
	}
	p.tracked, p.remote = false, nil
}

// PresenceChanged is called when a member of another node has joined or left a topic. The topic
// may have been dropped meanwhile, and created again.
func (ts *Topics) PresenceChanged(name string, changed broker.Member, joined bool) {
	t := ts.lock(name)
	if t == nil {
		return
	}
	defer t.mu.Unlock()
	p := t.presence
	if p == nil {
		return
	}
	a, ok := parseMember(changed)
	if !ok {
		return
	}
	key := remoteMember{changed.Node, changed.ID}
	switch known := p.remote[key]; {
	case !joined && known != nil:
		delete(p.remote, key)
		if a.ended {
			a.Stays = 0
		}
		ts.removeMember(t, known, changed.Node, a.Stays)
	case joined && known == nil && p.tracked:
		ts.addRemoteMemberLocked(t, key, a)
	}
}

// addRemoteMemberLocked adds a connection of another node to a member.
func (ts *Topics) addRemoteMemberLocked(t *Topic, key remoteMember, a Announced) {
	ts.config.Away.NodeReturned(key.node)
	p := t.presence
	if a.ended {
		if m := p.members[a.ConnID]; m != nil { // it leaves next
			ts.releaseHeldLocked(t, m)
			m.conns++
			p.remote[key] = m
		}
		return
	}
	p.remote[key] = ts.addMember(t, a.Member)
	ts.endAwayLocked(t, a.ConnID)
}

// notifyPresenceLocked reports a change to clients that asked for presence, and to nextPresence. It
// needs t.mu, so that both get the changes in order.
func (ts *Topics) notifyPresenceLocked(t *Topic, m protocol.Member, joined bool) {
	change := change{m, joined}
	ts.addPresenceChangeLocked(t, change)
	if ts.config.PresenceWaits != nil && ts.events.add(t.Name, change) {
		ts.config.PresenceWaits()
	}
}
