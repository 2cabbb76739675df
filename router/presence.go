package router

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A Member is a connection that is present in a topic, or a session: it stays present, as the same
// member, from the loss of a connection until the client resumes it or cannot do so any more. In a
// topic with a [TopicOptions] PresenceGrace, it is a user.
type Member struct {
	ConnID   string `json:"connId"` // of the connection, or of the first one of its session; or a text that stands for the user
	TenantID string `json:"tenantId,omitempty"`
	UserID   string `json:"userId,omitempty"`
	Info     string `json:"info,omitempty"` // the argument of Join
}

// A PresenceEvent reports that a member has joined a topic or left it.
type PresenceEvent struct {
	Topic  string
	Member Member
	Joined bool // false if the member has left
}

// presence holds the members of a topic that this node knows. A nil *presence has none. It is guarded
// by the topic's lock.
type presence struct {
	tracked bool               // a connection of this node has joined the topic
	members map[string]*member // by Member.ConnID
	local   map[*Conn]*member
	remote  map[remoteMember]*member
	held    map[string]*heldMember // by Member.ConnID: those that no node announces
	away    map[string]*Conn       // by Member.ConnID: the closed connection of this node with which the member waits for its client
	feed    *presenceFeed          // nil until a client asks for presence
}

// A remoteMember is a member as another node announces it.
type remoteMember struct{ node, id string }

// A member is present with one connection or, while its session moves to another one, with several.
type member struct {
	Member

	conns   int32 // on all nodes
	local   int32 // on this node
	staysMs int32 // as this node announces it, or notAnnounced
}

// maxInfoBytes bounds the info of a member.
const maxInfoBytes = 1024

// Join subscribes the connection to topic and makes it present there, until it unsubscribes or
// is closed: [Router.Presence] lists it on every node with a connection that has joined the
// topic. Info is for the application, a display name for example, with up to 1024 bytes.
// Joining again has no effect and keeps the info, unless that is empty: the member then leaves
// and joins with the new info. Join returns the errors of [Conn.Subscribe], and
// INVALID_ARGUMENT if info is too long.
func (c *Conn) Join(topic, info string) error {
	if len(info) > maxInfoBytes {
		return errors.Errorf(errors.InvalidArgument, "the info for topic %q has %d bytes; it must have at most %d", topic, len(info), maxInfoBytes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.session(); s != nil {
		return s.subscribe(topic, topicGrant{Joined: true, Info: info})
	}
	c.unmarkOwn(topic)
	t, err := c.addSubscriptionLocked(topic, false)
	if err == nil {
		c.router.topics.joinLocked(t, c, info)
	}
	return err
}

// Presence returns the members of topic on all nodes, sorted by ConnID. It returns nil unless
// a connection of this node has joined the topic and this node still has subscribers.
func (r *Router) Presence(topic string) []Member {
	t := r.topics.lock(topic)
	if t == nil {
		return nil
	}
	defer t.mu.Unlock()
	all := t.presence.all()
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.ConnID, b.ConnID) })
	return all
}

// all returns the members on all nodes, in no particular order, or nil if there are none.
func (p *presence) all() []Member {
	if p == nil || len(p.members) == 0 {
		return nil
	}
	all := make([]Member, 0, len(p.members))
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
func (p *presence) localMember(c *Conn) (m Member, joined bool) {
	if p == nil || p.local[c] == nil {
		return Member{}, false
	}
	return p.local[c].Member, true
}

// needPresenceLocked returns the presence of a topic, which is not nil.
func (t *topic) needPresenceLocked() *presence {
	if t.presence == nil {
		t.presence = new(presence)
	}
	return t.presence
}

// joinLocked adds a local member, or sets its info if that is empty. c must subscribe to t, and c.mu must
// be held.
func (ts *topics) joinLocked(t *topic, c *Conn, info string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m, ok := t.presence.localMember(c); ok {
		ts.updateMemberLocked(t, c, m, cmp.Or(m.Info, info))
		return
	}
	if p := t.needPresenceLocked(); !p.tracked {
		p.tracked, p.members = true, map[string]*member{}
		p.local, p.remote = map[*Conn]*member{}, map[remoteMember]*member{}
		ts.router.node.Track(t.name)
	}
	ts.addLocalMemberLocked(t, c, info)
}

// updateMemberLocked replaces a local member, which leaves and joins, unless neither its info nor
// the identity of c, nor the session to which c belongs, has changed. It needs t.mu.
func (ts *topics) updateMemberLocked(t *topic, c *Conn, old Member, info string) {
	current := t.presence.local[c]
	switch m, staysMs := c.member(t, info); {
	case old.ConnID != m.ConnID:
		ts.addLocalMemberLocked(t, c, info) // first: it may be the same client
		ts.dropLocalMemberLocked(t, current, true)
	case old != m || staysMs > current.staysMs:
		ts.setMember(t, current, m)
		ts.announceLocked(t, current, max(staysMs, current.staysMs))
	}
}

// addLocalMemberLocked needs t.mu.
func (ts *topics) addLocalMemberLocked(t *topic, c *Conn, info string) {
	m, staysMs := c.member(t, info)
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

// setAway ends what a closed connection receives from the topic, and reports whether its member
// waits there for the client: from then on, it leaves as soon as another connection has the member.
func (ts *topics) setAway(t *topic, c *Conn) (waits bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.silenceLocked(c)
	m, present := t.presence.localMember(c)
	p := t.presence
	if !present || p.local[c].conns > 1 && c.goesOn(t.name) {
		return false
	}
	if p.away == nil {
		p.away = map[string]*Conn{}
	}
	ts.endAwayLocked(t, m.ConnID) // one is enough
	p.away[m.ConnID] = c
	return true
}

// endAwayLocked ends the presence of a closed connection whose member another connection has. It
// needs t.mu.
func (ts *topics) endAwayLocked(t *topic, connID string) {
	if c := t.presence.away[connID]; c != nil {
		delete(t.presence.away, connID)
		ts.removeLocalMemberLocked(t, c, false)
		ts.router.grace.hasten(c, t)
	}
}

// addMember adds a connection to a member, which joins with the first one.
func (ts *topics) addMember(t *topic, m Member) *member {
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
func (ts *topics) setMember(t *topic, old *member, m Member) {
	if old.Member != m {
		ts.notifyPresenceLocked(t, old.Member, false)
		old.Member = m
		ts.notifyPresenceLocked(t, m, true)
	}
}

// removeMember removes a connection that a node has announced from a member. With the last one, the
// member leaves, or is held if it stays.
func (ts *topics) removeMember(t *topic, m *member, node string, stays time.Duration) {
	switch m.conns--; {
	case m.conns > 0:
	case stays > 0:
		ts.holdLocked(t, m, node, stays)
	default:
		ts.leaveLocked(t, m)
	}
}

// leaveLocked ends the presence of a member without connections.
func (ts *topics) leaveLocked(t *topic, m *member) {
	ts.releaseHeldLocked(t, m)
	delete(t.presence.members, m.ConnID)
	ts.notifyPresenceLocked(t, m.Member, false)
}

// removeLocalMemberLocked removes a connection, after which the member leaves unless another
// connection has it. Unless that is final, one on another node may have it that is not known yet.
// It needs t.mu.
func (ts *topics) removeLocalMemberLocked(t *topic, c *Conn, final bool) {
	if t.presence == nil || t.presence.local[c] == nil {
		return
	}
	m := t.presence.local[c]
	delete(t.presence.local, c)
	if t.presence.away[m.ConnID] == c {
		delete(t.presence.away, m.ConnID)
	}
	ts.dropLocalMemberLocked(t, m, final)
}

// dropLocalMemberLocked removes one of the connections of a member.
func (ts *topics) dropLocalMemberLocked(t *topic, m *member, final bool) {
	if m.local--; m.local == 0 {
		ts.withdrawLocked(t, m, final)
	}
	if final {
		ts.removeMember(t, m, "", 0)
	} else {
		ts.removeMember(t, m, "", takeOverHold)
	}
}

// untrackLocked ends the presence of a topic without subscribers. It needs t.mu. It keeps the local
// members that have not left yet: remove decreases topic.subscriptions before it acquires t.mu, so
// others may leave after the last one.
func (ts *topics) untrackLocked(t *topic) {
	p := t.presence
	if p == nil || !p.tracked {
		return
	}
	ts.router.node.Untrack(t.name)
	for key, m := range p.remote {
		ts.removeMember(t, m, key.node, 0)
	}
	for _, h := range p.held {
		ts.leaveLocked(t, h.member)
	}
	p.tracked, p.remote = false, nil
}

// presenceChanged is called when a member of another node has joined or left a topic. The topic
// may have been dropped meanwhile, and created again.
func (ts *topics) presenceChanged(name string, changed broker.Member, joined bool) {
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
			a.stays = 0
		}
		ts.removeMember(t, known, changed.Node, a.stays)
	case joined && known == nil && p.tracked:
		ts.addRemoteMemberLocked(t, key, a)
	}
}

// addRemoteMemberLocked adds a connection of another node to a member.
func (ts *topics) addRemoteMemberLocked(t *topic, key remoteMember, a announcedMember) {
	ts.held.nodeReturned(key.node)
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

// notifyPresenceLocked reports a change to clients that asked for presence, and queues a call of
// Options.OnPresence. It needs t.mu, so that both get the changes in order.
func (ts *topics) notifyPresenceLocked(t *topic, m Member, joined bool) {
	change := presenceChange{m, joined}
	ts.addPresenceChangeLocked(t, change)
	if r := ts.router; r.opts.OnPresence != nil && r.presenceEvents.add(t.name, change) {
		r.events.Add(r.reportPresence)
	}
}
