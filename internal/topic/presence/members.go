package presence

import (
	"cmp"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/present"
	"github.com/penstock-go/penstock/internal/protocol"
)

// Members are the members of a topic that this node knows, and the clients that watch them. C is a
// connection of this node. The zero Members has none.
type Members[C comparable] struct {
	tracked bool               // a connection of this node has joined the topic, or has asked for its members
	byID    map[string]*member // by Member.ConnID
	local   map[C]*member
	remote  map[remoteMember]*member
	held    map[string]*present.Absence // by Member.ConnID: those that no node announces
	away    map[string]awayConn[C]      // by Member.ConnID
	feed    *feed[C]                    // nil until a client asks for presence
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

// An awayConn is a closed connection of this node with which a member waits for its client.
type awayConn[C comparable] struct {
	conn C
	away *present.Absence
}

// All returns the members on all nodes, in no particular order. It does not return nil.
func (p *Members[C]) All() []protocol.Member {
	all := make([]protocol.Member, 0, len(p.byID))
	for _, m := range p.byID {
		all = append(all, m.Member)
	}
	return all
}

// Len returns the number of members on all nodes.
func (p *Members[C]) Len() int { return len(p.byID) }

// Of returns the member of a connection, if that has joined.
func (p *Members[C]) Of(c C) (m protocol.Member, joined bool) {
	if local := p.local[c]; local != nil {
		return local.Member, true
	}
	return protocol.Member{}, false
}

// Track begins to know the members on other nodes. It reports false if it has begun before.
func (p *Members[C]) Track() (begins bool) {
	if p.tracked {
		return false
	}
	p.tracked, p.byID = true, map[string]*member{}
	p.local, p.remote = map[C]*member{}, map[remoteMember]*member{}
	return true
}

// Untrack ends the presence of a topic without subscribers. It keeps the local members that have not
// left yet. It reports false if Track has not been called.
func (p *Members[C]) Untrack() (e Effects, ends bool) {
	if !p.tracked {
		return e, false
	}
	for key, m := range p.remote {
		p.removeConn(&e, m, key.node, 0)
	}
	for connID := range p.held {
		p.leave(&e, p.byID[connID])
	}
	p.tracked, p.remote = false, nil
	return e, true
}

// Join makes a connection a member, or sets the info of its member if that is empty. Track must have been
// called.
func (p *Members[C]) Join(c C, a Announced) (e Effects) {
	if old := p.local[c]; old != nil {
		a.Info = cmp.Or(old.Info, a.Info)
		p.replace(&e, c, a)
	} else {
		p.addLocal(&e, c, a)
	}
	return e
}

// Rejoin replaces the member of a connection if that has joined, because its identity or its session has changed. It
// sets the info unless that is empty. If the identity has changed, other nodes see that the member leaves and joins.
func (p *Members[C]) Rejoin(c C, a Announced) (e Effects) {
	if old := p.local[c]; old != nil {
		a.Info = cmp.Or(a.Info, old.Info)
		p.replace(&e, c, a)
	}
	return e
}

// replace replaces a local member, which leaves and joins, unless neither its info nor its identity nor its session has
// changed.
func (p *Members[C]) replace(e *Effects, c C, a Announced) {
	current := p.local[c]
	switch staysMs := a.staysMs(); {
	case current.ConnID != a.ConnID:
		p.addLocal(e, c, a) // first: it may be the same client
		p.dropLocal(e, current, true)
	case current.Member != a.Member || staysMs > current.staysMs:
		p.set(e, current, a.Member)
		e.announce(current, max(staysMs, current.staysMs))
	}
}

func (p *Members[C]) addLocal(e *Effects, c C, a Announced) {
	m, staysMs := a.Member, a.staysMs()
	before := p.byID[m.ConnID]
	if before != nil {
		m.Info, staysMs = cmp.Or(m.Info, before.Info), max(staysMs, before.staysMs)
	}
	isKnown := before != nil && before.Member == m && before.staysMs == staysMs // to the other nodes, too
	added := p.addConn(e, m)
	added.local++
	p.local[c] = added
	if !isKnown {
		e.announce(added, staysMs)
	}
	p.endAway(e, m.ConnID)
}

// addConn adds a connection to a member, which joins with the first one.
func (p *Members[C]) addConn(e *Effects, m protocol.Member) *member {
	added := p.byID[m.ConnID]
	if added == nil {
		added = &member{Member: m, staysMs: notAnnounced}
		p.byID[m.ConnID] = added
		p.change(e, m, true)
	}
	p.releaseHeld(e, added)
	added.conns++
	p.set(e, added, m)
	return added
}

// set replaces what is known of a member, which leaves and joins if that changes.
func (p *Members[C]) set(e *Effects, old *member, m protocol.Member) {
	if old.Member != m {
		p.change(e, old.Member, false)
		old.Member = m
		p.change(e, m, true)
	}
}

// removeConn removes a connection that a node has announced from a member; node is "" if it was this node. With the
// last one, the member leaves, or is held if it stays.
func (p *Members[C]) removeConn(e *Effects, m *member, node string, stays time.Duration) {
	switch m.conns--; {
	case m.conns > 0:
	case stays > 0:
		p.hold(e, m, node, stays)
	default:
		p.leave(e, m)
	}
}

// leave ends the presence of a member without connections.
func (p *Members[C]) leave(e *Effects, m *member) {
	p.releaseHeld(e, m)
	delete(p.byID, m.ConnID)
	p.change(e, m.Member, false)
}

// change reports a change to the watchers and to the application.
func (p *Members[C]) change(e *Effects, m protocol.Member, joined bool) {
	c := Change{m, joined}
	e.Changes = append(e.Changes, c)
	if p.feed != nil && p.feed.add(c) {
		e.SendFeed = true
	}
}

// Leave ends the presence of a connection, after which its member leaves unless another connection has it. Unless that is
// final, one on another node may have it that is not known yet.
func (p *Members[C]) Leave(c C, final bool) (e Effects) {
	p.removeLocal(&e, c, final)
	return e
}

func (p *Members[C]) removeLocal(e *Effects, c C, final bool) {
	m := p.local[c]
	if m == nil {
		return
	}
	delete(p.local, c)
	if a, ok := p.away[m.ConnID]; ok && a.conn == c {
		delete(p.away, m.ConnID)
	}
	p.dropLocal(e, m, final)
}

// dropLocal removes one of the connections of a member.
func (p *Members[C]) dropLocal(e *Effects, m *member, final bool) {
	if m.local--; m.local == 0 {
		e.withdraw(m, final)
	}
	if final {
		p.removeConn(e, m, "", 0)
	} else {
		p.removeConn(e, m, "", TakeOverHold)
	}
}

// Changed handles a member that another node has announced, or withdrawn. It does nothing for one that is malformed.
func (p *Members[C]) Changed(changed broker.Member, joined bool) (e Effects) {
	a, ok := parseMember(changed)
	if !ok {
		return e
	}
	key := remoteMember{changed.Node, changed.ID}
	switch known := p.remote[key]; {
	case !joined && known != nil:
		delete(p.remote, key)
		if a.ended {
			a.Stays = 0
		}
		p.removeConn(&e, known, changed.Node, a.Stays)
	case joined && known == nil && p.tracked:
		p.addRemote(&e, key, a)
	}
	return e
}

// addRemote adds a connection of another node to a member.
func (p *Members[C]) addRemote(e *Effects, key remoteMember, a Announced) {
	e.NodeIsBack = key.node
	if a.ended {
		if m := p.byID[a.ConnID]; m != nil { // it leaves next
			p.releaseHeld(e, m)
			m.conns++
			p.remote[key] = m
		}
		return
	}
	p.remote[key] = p.addConn(e, a.Member)
	p.endAway(e, a.ConnID)
}
