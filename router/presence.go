package router

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A Member is a connection that has entered a topic.
type Member struct {
	ConnID   string `json:"connId"`
	TenantID string `json:"tenantId,omitempty"`
	UserID   string `json:"userId,omitempty"`
	Info     string `json:"info,omitempty"` // what Enter was called with
}

// A PresenceEvent says that a member has entered a topic, or left it.
type PresenceEvent struct {
	Topic  string
	Member Member
	Joined bool
}

// presence is who has entered a topic, as far as this node knows. It is guarded by the
// topic's lock.
type presence struct {
	tracked bool // somebody has entered here
	local   map[string]Member
	remote  map[string]*remoteMembers // by node
	queryID int
}

// remoteMembers are the members on another node.
type remoteMembers struct {
	members map[string]Member
	asked   int // the question that was answered last
}

const maxInfoBytes = 1024

// queryTimeout is how long a node may take to say who is there, before its members count
// as gone.
const queryTimeout = 3 * time.Second

// Join subscribes the connection to topic, and lists it among the topic's members
// on all nodes, until it unsubscribes or ends. Info is for the application: a name,
// say, of up to 1024 bytes. Entering twice is the same as once, and keeps the first info.
func (c *Conn) Join(topic, info string) error {
	if len(info) > maxInfoBytes {
		return errors.Errorf(errors.InvalidArgument, "what is to be shown in %q has %d bytes; it must have at most %d", topic, len(info), maxInfoBytes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.subscribe(topic); err != nil {
		return err
	}
	c.router.topics.join(topic, c, info)
	return nil
}

// Presence returns who has entered topic, on all nodes, sorted by ConnID. It knows only
// topics that a connection of this node has entered.
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

func (t *topics) join(name string, c *Conn, info string) {
	to := t.find(name) // c subscribes to it
	to.mu.Lock()
	defer to.mu.Unlock()
	p := &to.presence
	if _, ok := p.local[c.id]; ok {
		return
	}
	if !p.tracked {
		*p = presence{tracked: true, local: map[string]Member{}, remote: map[string]*remoteMembers{}}
		t.queryPresence(to)
	}
	m := Member{ConnID: c.id, TenantID: c.identity.TenantID, UserID: c.identity.UserID, Info: info}
	p.local[c.id] = m
	t.notifyPresence(to, m, true)
	t.router.session.Publish(name, presencePacket(packetJoin, m))
}

// leave must be called with the topic's lock held.
func (t *topics) removeLocalMember(from *topic, c *Conn) {
	m, ok := from.presence.local[c.id]
	if !ok {
		return
	}
	delete(from.presence.local, c.id)
	t.notifyPresence(from, m, false)
	t.router.session.Publish(from.name, presencePacket(packetLeave, m))
}

// queryPresence asks all nodes for their members, and those that are silent once more, because the
// question may have been lost. Who does not answer in time has none. It must be called
// with the topic's lock held.
func (t *topics) queryPresence(of *topic) {
	if t.router.opts.Broker == nil {
		return
	}
	of.presence.queryID++
	asked := of.presence.queryID
	t.router.session.Publish(of.name, presencePacket(packetPresenceQuery))
	time.AfterFunc(queryTimeout/2, func() {
		of.mu.Lock()
		defer of.mu.Unlock()
		if len(of.presence.unresponsive(asked)) > 0 {
			t.router.session.Publish(of.name, presencePacket(packetPresenceQuery))
		}
	})
	time.AfterFunc(queryTimeout, func() {
		of.mu.Lock()
		defer of.mu.Unlock()
		for _, node := range of.presence.unresponsive(asked) {
			t.removeNode(of, node)
		}
	})
}

// unresponsive returns the nodes that have not answered a question.
func (p *presence) unresponsive(asked int) (nodes []string) {
	for node, remote := range p.remote {
		if remote.asked < asked {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// forget drops the members on a node.
func (t *topics) removeNode(of *topic, node string) {
	remote := of.presence.remote[node]
	if remote == nil {
		return
	}
	delete(of.presence.remote, node)
	for _, m := range remote.members {
		t.notifyPresence(of, m, false)
	}
}

// receivePresence takes a packet about members. It must be called with the topic's
// lock held.
func (t *topics) receivePresence(of *topic, from string, kind byte, body []byte) {
	p := &of.presence
	if kind == packetPresenceQuery {
		t.publishPresence(of)
		return
	}
	var members []Member
	if !p.tracked || unmarshal(body, &members) != nil {
		return
	}
	remote := p.remote[from]
	if remote == nil {
		// It may have come after the question that is open.
		remote = &remoteMembers{members: map[string]Member{}, asked: p.queryID}
		p.remote[from] = remote
	}
	switch kind {
	case packetJoin:
		t.addRemoteMembers(of, remote, members)
	case packetLeave:
		for _, m := range members {
			t.removeRemoteMember(of, remote, m)
		}
	case packetPresenceState:
		remote.asked = p.queryID
		here := make(map[string]struct{}, len(members))
		for _, m := range members {
			here[m.ConnID] = struct{}{}
		}
		for id, m := range remote.members {
			if _, ok := here[id]; !ok {
				t.removeRemoteMember(of, remote, m)
			}
		}
		t.addRemoteMembers(of, remote, members)
	}
}

// publishPresence sends many members in parts, and then who they were: a packet has bounds.
func (t *topics) publishPresence(of *topic) {
	members := slices.Collect(maps.Values(of.presence.local))
	if len(members) > membersPerPacket {
		for part := range slices.Chunk(members, membersPerPacket) {
			t.router.session.Publish(of.name, presencePacket(packetJoin, part...))
		}
		for i, m := range members {
			members[i] = Member{ConnID: m.ConnID}
		}
	}
	t.router.session.Publish(of.name, presencePacket(packetPresenceState, members...))
}

const membersPerPacket = 500

func (t *topics) addRemoteMembers(of *topic, remote *remoteMembers, members []Member) {
	for _, m := range members {
		if _, ok := remote.members[m.ConnID]; !ok {
			remote.members[m.ConnID] = m
			t.notifyPresence(of, m, true)
		}
	}
}

func (t *topics) removeRemoteMember(of *topic, remote *remoteMembers, m Member) {
	if _, ok := remote.members[m.ConnID]; ok {
		delete(remote.members, m.ConnID)
		t.notifyPresence(of, m, false)
	}
}

// notifyPresence tells Options.OnPresence, in the order in which things happened.
func (t *topics) notifyPresence(of *topic, m Member, entered bool) {
	if t.router.opts.OnPresence == nil {
		return
	}
	t.router.events.Add(func() {
		t.router.hook("OnPresence", func() {
			t.router.opts.OnPresence(PresenceEvent{Topic: of.name, Member: m, Joined: entered})
		})
	})
}
