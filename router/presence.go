package router

import (
	"cmp"
	"maps"
	"slices"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A Member is a connection that is present in a topic.
type Member struct {
	ConnID   string `json:"connId"`
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
	tracked bool              // a connection of this node has joined the topic
	local   map[string]Member // by connection ID
	remote  map[memberKey]Member
	feed    *presenceFeed // nil until a client asks for presence
}

// A memberKey identifies a member on all nodes. The node is "" for this node.
type memberKey struct{ node, id string }

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
	t, err := c.addSubscription(topic, false)
	if err == nil {
		c.router.topics.join(t, c, info)
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
	all := t.presence.members()
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.ConnID, b.ConnID) })
	return all
}

// members returns the members on all nodes, in no particular order, or nil if there are none.
func (p *presence) members() []Member {
	if p == nil || len(p.local)+len(p.remote) == 0 {
		return nil
	}
	all := make([]Member, 0, len(p.local)+len(p.remote))
	all = slices.AppendSeq(all, maps.Values(p.local))
	return slices.AppendSeq(all, maps.Values(p.remote))
}

// count returns the number of members.
func (p *presence) count() int {
	if p == nil {
		return 0
	}
	return len(p.local) + len(p.remote)
}

// localMember returns the member of a connection, if that has joined.
func (p *presence) localMember(c *Conn) (m Member, joined bool) {
	if p == nil {
		return Member{}, false
	}
	m, joined = p.local[c.id]
	return m, joined
}

// needPresence returns the presence of a topic, which is not nil. It must be called with t.mu held.
func (t *topic) needPresence() *presence {
	if t.presence == nil {
		t.presence = new(presence)
	}
	return t.presence
}

// join adds a local member, or sets its info if that is empty. c must subscribe to t, and c.mu must
// be held.
func (ts *topics) join(t *topic, c *Conn, info string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m, ok := t.presence.localMember(c); ok {
		ts.updateMember(t, c, m, cmp.Or(m.Info, info))
		return
	}
	if p := t.needPresence(); !p.tracked {
		p.tracked, p.local, p.remote = true, map[string]Member{}, map[memberKey]Member{}
		ts.router.session.Track(t.name)
	}
	ts.addLocalMember(t, c, info)
}

// updateMember replaces a local member, which leaves and joins, unless neither its info nor the
// identity of c has changed. It must be called with t.mu held.
func (ts *topics) updateMember(t *topic, c *Conn, old Member, info string) {
	if old == c.member(info) {
		return
	}
	ts.notifyPresence(t, memberKey{id: c.id}, old, false)
	ts.addLocalMember(t, c, info)
}

// addLocalMember must be called with t.mu held.
func (ts *topics) addLocalMember(t *topic, c *Conn, info string) {
	m := c.member(info)
	t.presence.local[c.id] = m
	ts.notifyPresence(t, memberKey{id: c.id}, m, true)
	ts.router.session.Join(t.name, c.id, encodeMember(m))
}

// member returns the connection as a member of a topic.
func (c *Conn) member(info string) Member {
	identity := c.Identity()
	return Member{ConnID: c.id, TenantID: identity.TenantID, UserID: identity.UserID, Info: info}
}

// removeLocalMember must be called with t.mu held.
func (ts *topics) removeLocalMember(t *topic, c *Conn) {
	m, ok := t.presence.localMember(c)
	if !ok {
		return
	}
	delete(t.presence.local, c.id)
	ts.notifyPresence(t, memberKey{id: c.id}, m, false)
	ts.router.session.Leave(t.name, c.id)
}

// untrack ends the presence of a topic without subscribers. It must be called with t.mu held. It
// keeps the local members that have not left yet: remove decreases topic.subscriptions before it
// acquires t.mu, so others may leave after the last one.
func (ts *topics) untrack(t *topic) {
	p := t.presence
	if p == nil || !p.tracked {
		return
	}
	ts.router.session.Untrack(t.name)
	for key, m := range p.remote {
		ts.notifyPresence(t, key, m, false)
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
	key := memberKey{changed.Node, changed.ID}
	m, known := p.remote[key]
	switch {
	case !joined && known:
		delete(p.remote, key)
	case joined && !known && p.tracked:
		var ok bool
		if m, ok = parseMember(changed); !ok {
			return
		}
		p.remote[key] = m
	default:
		return
	}
	ts.notifyPresence(t, key, m, joined)
}

// notifyPresence reports a change to clients that asked for presence, and queues a call of
// Options.OnPresence. It must be called with t.mu held, so that both get the changes in order.
func (ts *topics) notifyPresence(t *topic, key memberKey, m Member, joined bool) {
	change := presenceChange{key, m, joined}
	ts.addPresenceChange(t, change)
	if r := ts.router; r.opts.OnPresence != nil && r.presenceEvents.add(t.name, change) {
		r.events.Add(r.reportPresence)
	}
}
