package cluster

import (
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/cluster/presence"
	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/random"
)

// members is the presence of the members on this node and on the nodes whose topics it tracks. It
// runs the state machine of package presence.
type members struct {
	owner  *Node
	events executor.FuncQueue // calls of Handler.PresenceChanged, in the order of the changes

	// mu is held while packets are added to the outbox and calls to events. Its own callers may
	// hold locks that the handler acquires, so the handler is called by events.
	mu   sync.Mutex
	node *presence.Node
}

func (ms *members) init(s *Node) {
	ms.owner = s
	ms.node = presence.New(presence.Config{
		Name:        s.name,
		Incarnation: random.Uint64(),
		Rand:        random.New(),
		Output:      presenceOutput{s},
	})
}

// Join makes a member of this node present in topic.
func (s *Node) Join(topic, id, data string) {
	s.members.locked(func(n *presence.Node) { n.Join(topic, id, data) })
}

// Leave ends Join.
func (s *Node) Leave(topic, id string) {
	s.members.locked(func(n *presence.Node) { n.Leave(topic, id) })
}

// Track requests the members that other nodes have in topic.
func (s *Node) Track(topic string) {
	s.members.locked(func(n *presence.Node) { n.Track(topic, time.Now()) })
}

// Untrack undoes Track.
func (s *Node) Untrack(topic string) {
	s.members.locked(func(n *presence.Node) { n.Untrack(topic) })
}

// locked calls f unless the node is closed.
func (ms *members) locked(f func(*presence.Node)) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if !ms.owner.closed.Load() {
		f(ms.node)
	}
}

func (ms *members) tick(now time.Time) {
	ms.locked(func(n *presence.Node) { n.Tick(now) })
}

// heartbeat returns the payload of the next heartbeat.
func (ms *members) heartbeat(now time.Time) (payload []byte) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return ms.node.Heartbeat(now)
}

func (ms *members) peerHeartbeat(node string, payload []byte) {
	ms.locked(func(n *presence.Node) { n.PeerHeartbeat(node, payload, time.Now()) })
}

func (ms *members) peerFailed(node string) {
	ms.locked(func(n *presence.Node) { n.PeerFailed(node, time.Now()) })
}

func (ms *members) peerLeft(node string) {
	ms.locked(func(n *presence.Node) { n.PeerLeft(node, time.Now()) })
}

func (ms *members) receive(from string, packet []byte) {
	ms.locked(func(n *presence.Node) { n.Receive(from, packet, time.Now()) })
}

// A presenceOutput sends the packets of the state machine. Packets that are lost, also because the
// outbox is full, are repeated or found missing by the state machine.
type presenceOutput struct{ owner *Node }

// Publish sends a packet to the nodes that subscribe to topic.
func (o presenceOutput) Publish(topic string, packet []byte) {
	o.send(o.owner.engine.Channel(TopicChannel, topic), packet)
}

// Send sends a packet to one node.
func (o presenceOutput) Send(node string, packet []byte) {
	o.send(o.owner.engine.Channel(NodeChannel, node), packet)
}

// Broadcast sends a packet to all nodes.
func (o presenceOutput) Broadcast(packet []byte) { o.send(o.owner.nodes, packet) }

func (o presenceOutput) send(channel Channel, packet []byte) {
	o.owner.outbox.send(channel, nodeMessage{kind: kindPresence, packet: packet}, nil)
}

// Changed queues a call of the handler.
func (o presenceOutput) Changed(e presence.Event) {
	s := o.owner
	s.members.events.Add(func() {
		s.gate.Do(func() { s.handler.PresenceChanged(e.Topic, broker.Member(e.Member), e.Joined) })
	})
}
