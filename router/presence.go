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

// presence holds the members of a topic that this node knows. It is guarded by the topic's
// lock.
type presence struct {
	tracked bool              // a connection of this node has joined the topic
	local   map[string]Member // by connection ID
	remote  map[remoteMember]Member
}

// A remoteMember identifies a member on another node.
type remoteMember struct{ node, id string }

// maxInfoBytes bounds the info of a member.
const maxInfoBytes = 1024

// Join subscribes the connection to topic and makes it present there, until it unsubscribes or
// is closed: [Router.Presence] lists it on every node with a connection that has joined the
// topic. Info is for the application, a display name for example, with up to 1024 bytes.
// Joining again has no effect and keeps the first info. Join returns the errors of
// [Conn.Subscribe], and INVALID_ARGUMENT if info is too long.
func (c *Conn) Join(topic, info string) error {
	if len(info) > maxInfoBytes {
		return errors.Errorf(errors.InvalidArgument, "the info for topic %q has %d bytes; it must have at most %d", topic, len(info), maxInfoBytes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.subscribe(topic); err != nil {
		return err
	}
	c.router.topics.join(topic, c, info)
	return nil
}

// Presence returns the members of topic on all nodes, sorted by ConnID. It returns nil unless
// a connection of this node has joined the topic and this node still has subscribers.
func (r *Router) Presence(topic string) []Member {
	t := r.topics.lock(topic)
	if t == nil {
		return nil
	}
	defer t.mu.Unlock()
	all := slices.AppendSeq(slices.Collect(maps.Values(t.presence.local)), maps.Values(t.presence.remote))
	slices.SortFunc(all, func(a, b Member) int { return cmp.Compare(a.ConnID, b.ConnID) })
	return all
}

// join adds a local member. c must be subscribed, and c.mu must be held.
func (ts *topics) join(name string, c *Conn, info string) {
	t := ts.find(name) // c subscribes to it
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &t.presence
	if _, ok := p.local[c.id]; ok {
		return
	}
	if !p.tracked {
		*p = presence{tracked: true, local: map[string]Member{}, remote: map[remoteMember]Member{}}
		ts.router.session.Track(name)
	}
	ts.addLocalMember(t, c, info)
}

// addLocalMember adds or replaces a local member. It must be called with c.mu and t.mu held.
func (ts *topics) addLocalMember(t *topic, c *Conn, info string) {
	identity := c.Identity()
	m := Member{ConnID: c.id, TenantID: identity.TenantID, UserID: identity.UserID, Info: info}
	t.presence.local[c.id] = m
	ts.notifyPresence(t, m, true)
	ts.router.session.Join(t.name, c.id, encodeMember(m))
}

// removeLocalMember must be called with t.mu held.
func (ts *topics) removeLocalMember(t *topic, c *Conn) {
	m, ok := t.presence.local[c.id]
	if !ok {
		return
	}
	delete(t.presence.local, c.id)
	ts.notifyPresence(t, m, false)
	ts.router.session.Leave(t.name, c.id)
}

// untrack ends the presence of a topic without subscribers. It must be called with t.mu held.
func (ts *topics) untrack(t *topic) {
	if !t.presence.tracked {
		return
	}
	ts.router.session.Untrack(t.name)
	for _, m := range t.presence.remote {
		ts.notifyPresence(t, m, false)
	}
	t.presence = presence{}
}

// presenceChanged is called when a member of another node has joined or left a topic. The topic
// may have been dropped meanwhile, and created again.
func (ts *topics) presenceChanged(name string, changed broker.Member, joined bool) {
	t := ts.lock(name)
	if t == nil {
		return
	}
	defer t.mu.Unlock()
	id := remoteMember{changed.Node, changed.ID}
	m, known := t.presence.remote[id]
	switch {
	case !joined && known:
		delete(t.presence.remote, id)
	case joined && !known && t.presence.tracked:
		var ok bool
		if m, ok = parseMember(changed); !ok {
			return
		}
		t.presence.remote[id] = m
	default:
		return
	}
	ts.notifyPresence(t, m, joined)
}

// notifyPresence queues a call of Options.OnPresence. Calls are queued under the topic's lock,
// so they run in the order of the changes.
func (ts *topics) notifyPresence(t *topic, m Member, joined bool) {
	if ts.router.opts.OnPresence == nil {
		return
	}
	ts.router.events.Add(func() {
		ts.router.hook("OnPresence", func() {
			ts.router.opts.OnPresence(PresenceEvent{Topic: t.name, Member: m, Joined: joined})
		})
	})
}
