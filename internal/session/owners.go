package session

import (
	"encoding/binary"
	"slices"

	"github.com/penstock-go/penstock/internal/wire"
)

// This file makes earlier connections of a session stop, on all nodes. The connection that has got it
// announces its generation twice: at once, so that earlier ones handle no further messages, and when it
// has subscribed to the topics, so that they leave these. A node that loses the packets notices it when
// it stores the record again.

// Announce makes earlier connections stop.
func (k *Claim) Announce() {
	s := k.Session
	earlier := k.node.before(s.id, s.generation)
	isOwner := func(s *Session) bool { return s.conn.ID == k.owner }
	// Unless the client has acknowledged the answer to the owner, one before it may not know yet that it
	// has lost the session.
	k.elsewhere = k.unacknowledged || k.owner != s.conn.ID && !slices.ContainsFunc(earlier, isOwner)
	for _, other := range earlier {
		other.handle(other.supersedeLocked)
	}
	if k.elsewhere {
		k.node.config.Publish(PacketClaimed, s.packet())
	}
}

// AnnounceMoved makes earlier connections leave the topics. The session goes on without those that it
// lacks.
func (k *Claim) AnnounceMoved(lacking []string) {
	s := k.Session
	k.node.move(s.id, s.generation, lacking)
	if !k.elsewhere {
		return
	}
	packet := s.packet()
	for _, topic := range lacking {
		packet = wire.AppendString(packet, topic)
	}
	k.node.config.Publish(PacketMoved, packet)
}

func (n *Node) move(id string, generation uint64, lacking []string) {
	for _, s := range n.before(id, generation) {
		s.handle(func() []Action { return s.moveLocked(lacking) })
	}
	n.comeBack(id, generation) // last: once they have moved, none of them is counted again
}

func (s *Session) packet() []byte {
	return binary.AppendUvarint(wire.AppendString(nil, s.id), s.generation)
}

// Receive handles a packet that another node has published. An invalid one has no effect.
func (n *Node) Receive(kind Packet, packet []byte) {
	id, rest, ok := wire.CutString(packet)
	if !ok {
		return
	}
	generation, size := binary.Uvarint(rest)
	if size <= 0 {
		return
	}
	if kind == PacketClaimed {
		for _, s := range n.before(id, generation) {
			s.handle(s.supersedeLocked)
		}
		return
	}
	var lacking []string
	for rest = rest[size:]; len(rest) > 0; {
		var topic string
		if topic, rest, ok = wire.CutString(rest); !ok {
			return
		}
		lacking = append(lacking, topic)
	}
	n.move(id, generation, lacking)
}
