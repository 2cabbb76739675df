package session

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// A Config says how the sessions of a node work.
type Config struct {
	Store  broker.ValueStore // has the records; it may be nil if no session begins
	Within time.Duration     // in which a client can resume its session after the connection is lost

	MaxBytes            int                  // of the grants of a session
	PerUser, PerAddress int                  // sessions whose clients are away, on this node
	LongestGrace        func() time.Duration // for which a user without a session stays present at most
	WatchesEnds         bool                 // the connection wants ReportEnd, so that the end of every session is awaited
	Publish             func(kind Packet, packet []byte)
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

	mu      sync.Mutex // may be acquired under Session.mu; nothing is called under it
	byID    map[string][]*Session
	waiting map[*Session]struct{} // those with Session.waiting
	absent  absentees
}

// New returns a node without sessions.
func New(config Config) *Node {
	return &Node{config: config, byID: map[string][]*Session{}, waiting: map[*Session]struct{}{}, absent: absentees{}}
}

// UseStore sets Config.Store. It must be called before the first session begins.
func (n *Node) UseStore(store broker.ValueStore) { n.config.Store = store }

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
	Closed      EndReason = iota // by the client or the server
	Expired                      // the client has not come back, or the store has lost the record
	AccessEnded                  // the user has lost the access while the client was away
	Limited                      // by Config.PerUser or Config.PerAddress
)

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

// wait adds a session whose connection has been closed.
func (n *Node) wait(s *Session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting[s] = struct{}{}
}

func (n *Node) stopWaiting(s *Session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.waiting, s)
}

func (n *Node) allWaiting() []*Session {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]*Session, 0, len(n.waiting))
	for s := range n.waiting {
		all = append(all, s)
	}
	return all
}

// Len returns how many sessions the node knows, and how many of these are those of closed connections.
func (n *Node) Len() (all, waiting int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, of := range n.byID {
		all += len(of)
	}
	return all, len(n.waiting)
}

// Close waits until records have been stored, or ctx is done. Nothing is stored afterwards, and no
// session ends: other nodes let the members stay.
func (n *Node) Close(ctx context.Context) {
	n.saving.close(ctx)
	for _, s := range n.allWaiting() {
		s.stop()
	}
}

// stop ends the waiting, and nothing else.
func (s *Session) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked()
}
