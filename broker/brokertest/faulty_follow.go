package brokertest

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/executor"
)

// A faultySub is a topic that a node follows or has followed.
type faultySub struct {
	node  *faultyNode
	topic string
	queue executor.FuncQueue // calls of the handler, one at a time

	wanted bool // by Follow
	owed   int  // calls of Following
	active bool // at the store
	link   int  // counts calls of Unfollow and interruptions: what was sent before does not matter any more

	line     faultyLine
	inFlight []*faultyDelivery // in their order
	lost     uint64            // the highest offset that was lost and that no later one shows; 0 if there is none
}

// A faultyDelivery is a publication on its way to a node.
type faultyDelivery struct {
	broker.Publication
	lost bool
}

// Follow requests the publications of a topic.
func (n *faultyNode) Follow(topic string) {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	if n.closing {
		return
	}
	sub := n.subs[topic]
	if sub == nil {
		sub = &faultySub{node: n, topic: topic}
		n.subs[topic] = sub
	}
	sub.wanted = true
	sub.owed++
	sub.subscribeLocked()
}

// Unfollow undoes Follow.
func (n *faultyNode) Unfollow(topic string) {
	s := n.store
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := n.subs[topic]
	if sub == nil || !sub.wanted {
		return
	}
	sub.wanted, sub.owed, sub.lost = false, 0, 0
	sub.link++
	link := sub.link
	s.afterLocked(n.commands.next(s.delayLocked()), func() {
		if sub.link == link {
			sub.active = false
		}
	})
}

// subscribeLocked sends a subscription to the store, which confirms it once for each owed call of
// Following that is on its way. It does nothing while the connection is interrupted.
func (u *faultySub) subscribeLocked() {
	n, s, link := u.node, u.node.store, u.link
	if !n.up || n.crashed {
		return
	}
	s.afterLocked(n.commands.next(s.delayLocked()), func() {
		if u.link != link {
			return
		}
		u.active = true
		s.afterLocked(s.delayLocked(), func() {
			if u.link == link && u.owed > 0 {
				u.owed--
				u.callLocked(func() { n.handler.Following(u.topic) })
			}
		})
	})
}

// callLocked queues a call of the handler, or when the host runs again.
func (u *faultySub) callLocked(f func()) {
	n := u.node
	if n.host.paused {
		n.held = append(n.held, func() { u.callLocked(f) })
		return
	}
	u.queue.Add(func() { n.gate.Do(f) })
}

// publishLocked sends the last publication of a topic to the nodes that follow it.
func (s *FaultyStore) publishLocked(topic string) {
	log := s.data.topics[topic].log
	p := log[len(log)-1].Publication
	for _, n := range s.nodes {
		if u := n.subs[topic]; u != nil && u.active {
			u.deliverLocked(p)
		}
	}
}

// deliverLocked sends a publication to the node, behind those before it. If it is lost, a later one
// shows that, or Following is called again.
func (u *faultySub) deliverLocked(p broker.Publication) {
	s := u.node.store
	if s.happensLocked("lost delivery", s.faults.LostDeliveries) {
		u.lost = p.Position.Offset
		s.afterLocked(time.Duration(s.rng.Int64N(int64(5*time.Second))), func() { u.reportLocked(p.Position.Offset) })
		return
	}
	d := &faultyDelivery{Publication: p}
	u.inFlight = append(u.inFlight, d)
	s.afterLocked(u.line.next(s.delayLocked()), func() {
		if !d.lost {
			u.inFlight = u.inFlight[1:]
			u.publishedLocked(p)
		}
	})
}

// publishedLocked passes a publication to the node. Its packet is overwritten afterwards, since it
// is valid only until then.
func (u *faultySub) publishedLocked(p broker.Publication) {
	if p.Position.Offset > u.lost {
		u.lost = 0
	}
	u.node.store.noteEarlyLocked("delivered before answer", u.topic)
	u.callLocked(func() {
		p.Packet = bytes.Clone(p.Packet)
		u.node.handler.Published(u.topic, p)
		for i := range p.Packet {
			p.Packet[i] = '!'
		}
	})
}

// reportLocked reports a lost publication that no later one has shown.
func (u *faultySub) reportLocked(offset uint64) {
	if u.lost == offset && u.wanted {
		u.lost = 0
		u.owed++
		u.subscribeLocked()
	}
}

// breakLocked ends the subscription of an interrupted connection: the first publications that are
// on their way still arrive, and the others are lost.
func (u *faultySub) breakLocked() {
	s := u.node.store
	arrive := s.rng.IntN(len(u.inFlight) + 1)
	for i, d := range u.inFlight {
		if d.lost = true; i < arrive {
			u.publishedLocked(d.Publication)
		}
	}
	u.inFlight, u.active, u.lost = nil, false, 0
	u.link++
}

// restoreLocked subscribes again on a new connection, on which a few publications may arrive again.
func (u *faultySub) restoreLocked() {
	if !u.wanted {
		return
	}
	s := u.node.store
	u.owed = max(u.owed, 1)
	if t := s.data.topics[u.topic]; t != nil && s.rng.IntN(4) == 0 {
		s.occurred["repeated delivery"]++
		for _, r := range t.log[max(t.removed, len(t.log)-1-s.rng.IntN(3)):] {
			u.deliverLocked(r.Publication)
		}
	}
	for range u.owed {
		u.subscribeLocked()
	}
}

// subsLocked returns what the node follows, in the order of the names.
func (n *faultyNode) subsLocked() (subs []*faultySub) {
	for _, topic := range slices.Sorted(maps.Keys(n.subs)) {
		subs = append(subs, n.subs[topic])
	}
	return subs
}
