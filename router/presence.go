package router

import (
	"cmp"
	"maps"
	"slices"
	"time"

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
	tracked bool                      // a connection of this node has joined the topic
	local   map[string]Member         // by connection ID
	remote  map[string]*remoteMembers // by node
	queryID int                       // counts the queries of this node
}

// remoteMembers are the members on another node.
type remoteMembers struct {
	members  map[string]Member // by connection ID
	answered int               // queryID of the last query that the node has answered
}

// maxInfoBytes bounds the info of a member.
const maxInfoBytes = 1024

// queryTimeout is how long a node may take to answer a presence query before its members are
// removed.
const queryTimeout = 3 * time.Second

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
	all := slices.Collect(maps.Values(t.presence.local))
	for _, remote := range t.presence.remote {
		all = slices.AppendSeq(all, maps.Values(remote.members))
	}
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
		*p = presence{tracked: true, local: map[string]Member{}, remote: map[string]*remoteMembers{}}
		ts.queryPresence(t)
	}
	m := Member{ConnID: c.id, TenantID: c.identity.TenantID, UserID: c.identity.UserID, Info: info}
	p.local[c.id] = m
	ts.notifyPresence(t, m, true)
	_ = ts.router.session.Publish(name, presencePacket(packetJoin, m))
}

// removeLocalMember must be called with t.mu held.
func (ts *topics) removeLocalMember(t *topic, c *Conn) {
	m, ok := t.presence.local[c.id]
	if !ok {
		return
	}
	delete(t.presence.local, c.id)
	ts.notifyPresence(t, m, false)
	_ = ts.router.session.Publish(t.name, presencePacket(packetLeave, m))
}

// queryPresence asks all nodes for their members. Nodes that have not answered after half of
// queryTimeout are asked again, because packets may be lost, and after queryTimeout their
// members are removed. It must be called with t.mu held.
func (ts *topics) queryPresence(t *topic) {
	if ts.router.opts.Broker == nil {
		return
	}
	t.presence.queryID++
	query := t.presence.queryID
	_ = ts.router.session.Publish(t.name, presencePacket(packetPresenceQuery))
	time.AfterFunc(queryTimeout/2, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if len(t.presence.unresponsive(query)) > 0 {
			_ = ts.router.session.Publish(t.name, presencePacket(packetPresenceQuery))
		}
	})
	time.AfterFunc(queryTimeout, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, node := range t.presence.unresponsive(query) {
			ts.removeNode(t, node)
		}
	})
}

// unresponsive returns the nodes that have not answered the query with this ID.
func (p *presence) unresponsive(query int) (nodes []string) {
	for node, remote := range p.remote {
		if remote.answered < query {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// removeNode removes the members on a node. It must be called with t.mu held.
func (ts *topics) removeNode(t *topic, node string) {
	remote := t.presence.remote[node]
	if remote == nil {
		return
	}
	delete(t.presence.remote, node)
	for _, m := range remote.members {
		ts.notifyPresence(t, m, false)
	}
}

// receivePresence handles a presence packet. It must be called with t.mu held.
func (ts *topics) receivePresence(t *topic, node string, kind byte, body []byte) {
	p := &t.presence
	if kind == packetPresenceQuery {
		ts.publishPresence(t)
		return
	}
	var members []Member
	if !p.tracked || unmarshal(body, &members) != nil {
		return
	}
	remote := p.remote[node]
	if remote == nil {
		// A node that was unknown when the query was sent must not be removed for not answering.
		remote = &remoteMembers{members: map[string]Member{}, answered: p.queryID}
		p.remote[node] = remote
	}
	switch kind {
	case packetJoin:
		ts.addRemoteMembers(t, remote, members)
	case packetLeave:
		for _, m := range members {
			ts.removeRemoteMember(t, remote, m)
		}
	case packetPresenceState:
		remote.answered = p.queryID
		current := make(map[string]struct{}, len(members))
		for _, m := range members {
			current[m.ConnID] = struct{}{}
		}
		for id, m := range remote.members {
			if _, ok := current[id]; !ok {
				ts.removeRemoteMember(t, remote, m)
			}
		}
		ts.addRemoteMembers(t, remote, members)
	}
}

// publishPresence publishes the members on this node. Packets are limited in size: many
// members are sent in parts, followed by a state packet that contains only their connection
// IDs.
func (ts *topics) publishPresence(t *topic) {
	members := slices.Collect(maps.Values(t.presence.local))
	if len(members) > membersPerPacket {
		for part := range slices.Chunk(members, membersPerPacket) {
			_ = ts.router.session.Publish(t.name, presencePacket(packetJoin, part...))
		}
		for i, m := range members {
			members[i] = Member{ConnID: m.ConnID}
		}
	}
	_ = ts.router.session.Publish(t.name, presencePacket(packetPresenceState, members...))
}

// membersPerPacket bounds the members with their info in one packet.
const membersPerPacket = 500

// addRemoteMembers adds the members that are not known yet.
func (ts *topics) addRemoteMembers(t *topic, remote *remoteMembers, members []Member) {
	for _, m := range members {
		if _, ok := remote.members[m.ConnID]; !ok {
			remote.members[m.ConnID] = m
			ts.notifyPresence(t, m, true)
		}
	}
}

// removeRemoteMember removes a member, if it is known.
func (ts *topics) removeRemoteMember(t *topic, remote *remoteMembers, m Member) {
	if _, ok := remote.members[m.ConnID]; ok {
		delete(remote.members, m.ConnID)
		ts.notifyPresence(t, m, false)
	}
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
