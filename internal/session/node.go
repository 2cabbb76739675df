package session

import (
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/present"
	"github.com/penstock-go/penstock/internal/timerqueue"
	"github.com/penstock-go/penstock/internal/wire"
)

// A Config says how the sessions of a node work.
type Config struct {
	Store  broker.ValueStore // has the records; it may be nil if no session begins
	Within time.Duration     // in which a client can resume its session after the connection is lost

	MaxBytes    int            // of the grants of a session
	Away        *present.Table // of the node
	WatchesEnds bool           // the connection wants ReportEnd, so that the end of every session is awaited

	// Publish sends a packet to the node of the connection with the ID owner, or to all other nodes if that is "".
	Publish func(kind Packet, owner string, packet []byte)
}

// A Packet is a kind of packet that a node publishes to the others, which pass it to [Node.Receive].
type Packet uint8

// The kinds. A packet has the ID of a session and, as a varint, the generation of the connection that
// has it.
const (
	PacketClaimed Packet = iota // a connection has the session
	PacketMoved                 // it is in the topics, except those that the packet names
)

// A Node is all sessions of a node: those that its connections have or are claiming, and those whose
// connections have been closed here.
type Node struct {
	config Config
	saving tasks
	later  later
	timers timerqueue.Queue[*Session] // may be used under Session.mu

	mu   sync.Mutex // may be acquired under Session.mu; nothing is called under it
	byID map[string][]*Session
}

// New returns a node without sessions.
func New(config Config) *Node {
	return &Node{config: config, byID: map[string][]*Session{}}
}

// A Conn is the connection of a session.
type Conn struct {
	ID      string
	Address netip.Prefix // zero if it is unknown

	// Act does what the session requires. It is called without locks of this package.
	Act func(*Session, Action)
}

// An Action is what a connection must do for its session.
type Action struct {
	Kind    ActionKind
	Topics  []string  // of LeaveTopics
	Reason  EndReason // of ReportEnd
	Revoked Revoked   // of EndAccess
}

// An ActionKind says what must be done.
type ActionKind uint8

// The kinds.
const (
	// StopServing: another connection has the session. Reject messages from now on, and close after a
	// while if the session is still TakenOver. Stay in the topics until GiveUp.
	StopServing ActionKind = iota

	// GiveUp: the other connection is in the topics. Leave them, and close.
	GiveUp

	// LeaveTopics: the connection has been closed. Leave the topics in which it has stayed present.
	LeaveTopics

	// ReportEnd: no client can resume the session.
	ReportEnd

	// EndAccess: the user has lost access. Pass Revoked to [Session.Apply].
	EndAccess
)

// An EndReason says why a session has ended.
type EndReason uint8

// The reasons.
const (
	Closed            EndReason = iota // by the client or the server
	Expired                            // the client has not come back, or the store has lost the record
	AccessEnded                        // the user has lost the access while the client was away
	LimitedPerUser                     // too many clients of the user were away
	LimitedPerAddress                  // too many clients of the address were away
)

// String returns the name that applications know.
func (r EndReason) String() string {
	return [...]string{"closed", "expired", "revoked", "limited", "limited"}[r]
}

// Option returns the option that sets the limit, or "".
func (r EndReason) Option() string {
	return [...]string{LimitedPerUser: "router.Limits.SessionsPerUser", LimitedPerAddress: "router.Limits.ConnsPerIP"}[r]
}

// add adds a session, before the store can have it as that of its connection.
func (n *Node) add(s *Session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byID[s.id] = append(n.byID[s.id], s)
}

// remove removes a session that does not matter to others any more. It may have been removed before.
func (n *Node) remove(s *Session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	of := slices.DeleteFunc(n.byID[s.id], func(other *Session) bool { return other == s })
	if len(of) > 0 {
		n.byID[s.id] = of
	} else {
		delete(n.byID, s.id)
	}
}

// before returns the sessions of connections that had a session before a generation, or may have it
// because the store has not answered. A claim of the same generation has failed, and its connection
// may try again.
func (n *Node) before(id string, generation uint64) []*Session {
	n.mu.Lock()
	defer n.mu.Unlock()
	var earlier []*Session
	for _, s := range n.byID[id] {
		if s.generation < generation {
			earlier = append(earlier, s)
		}
	}
	return earlier
}

// of returns the session of a connection, or nil if it does not matter any more.
func (n *Node) of(id, connID string) *Session {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.byID[id] {
		if s.conn.ID == connID {
			return s
		}
	}
	return nil
}

// Len returns how many sessions the node knows.
func (n *Node) Len() (all int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, of := range n.byID {
		all += len(of)
	}
	return all
}

// Close waits until records have been stored, or ctx is done. Nothing is stored afterwards, and no
// session ends: other nodes let the members stay.
func (n *Node) Close(ctx context.Context) {
	n.later.close()
	n.saving.close(ctx)
	n.config.Away.Close()
}

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
		k.node.config.Publish(PacketClaimed, k.elsewhereOwner(), s.packet())
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
	k.node.config.Publish(PacketMoved, k.elsewhereOwner(), packet)
}

// elsewhereOwner returns the ID of the only connection on other nodes that has to stop, or "" if there may
// be others.
func (k *Claim) elsewhereOwner() string {
	if k.unacknowledged {
		return ""
	}
	return k.owner
}

func (n *Node) move(id string, generation uint64, lacking []string) {
	for _, s := range n.before(id, generation) {
		s.handle(func() []Action { return s.moveLocked(lacking) })
	}
	n.config.Away.Moved(id, generation) // last: once they have moved, none of them is counted again
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
