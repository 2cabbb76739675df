// Package enginetest is an engine in memory for tests, into which faults are injected. It uses no
// real time, so it works in a testing/synctest bubble.
package enginetest

import (
	"context"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/executor"
)

// A Network is an engine. It is safe for concurrent use.
type Network struct {
	mu    sync.Mutex
	nodes map[string]*Node // those that are not closed
}

var _ cluster.Engine = (*Network)(nil)

// New returns a network without nodes or faults.
func New() *Network { return &Network{nodes: map[string]*Node{}} }

// A Node is the link of a node. Its exported fields are its faults; change them with Update.
type Node struct {
	network *Network
	name    string
	events  cluster.Events
	queue   executor.FuncQueue             // calls of events
	senders map[string]*executor.FuncQueue // delayed messages, by publisher

	// Guarded by the network's lock.
	subscribed map[string]bool // by name of the channel
	connection int             // counts the connections of this node
	closed     bool
	Faults
}

// Faults are the faults of one node.
type Faults struct {
	// FailPublish makes Publish return errors, and publish nothing.
	FailPublish bool

	// Lose silently discards what the node publishes, though Publish returns no error.
	Lose bool

	// Stall makes Publish block until its context is done, without publishing.
	Stall bool

	// Duplicate delivers twice what the node publishes.
	Duplicate bool

	// Deaf discards what is sent to the node, without an interruption, until it reconnects: its
	// connection is to a server on which no node publishes.
	Deaf bool

	// Disconnect interrupts the subscriptions of the node until it is reset.
	Disconnect bool

	// Delay is how long a message of this node is in transit. Messages of other nodes overtake
	// it, those of the same node do not.
	Delay time.Duration

	// MaxBytes makes Publish return an error for larger messages. 0 means that there is no limit.
	MaxBytes int
}

var errFault = errors.New("enginetest: injected fault")

// Channel returns a channel in one of four partitions.
func (*Network) Channel(kind cluster.Kind, name string) cluster.Channel {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return cluster.Channel{Name: string(kind) + ":" + name, Partition: int(h.Sum32() % 4)}
}

// Connect adds a node.
func (n *Network) Connect(name string, events cluster.Events) cluster.Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	node := &Node{network: n, name: name, events: events, subscribed: map[string]bool{}, senders: map[string]*executor.FuncQueue{}}
	n.nodes[name] = node
	return node
}

// Update changes the faults of a node, given its name.
func (n *Network) Update(name string, change func(*Faults)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	node := n.nodes[name]
	if node == nil {
		return
	}
	was := node.Disconnect
	change(&node.Faults)
	switch {
	case node.Disconnect && !was:
		node.interruptLocked()
	case !node.Disconnect && was:
		node.restoreLocked()
	}
}

// Interrupt ends the connections of all nodes for d.
func (n *Network) Interrupt(d time.Duration) {
	for _, name := range n.names() {
		n.Update(name, func(f *Faults) { f.Disconnect, f.FailPublish = true, true })
	}
	time.Sleep(d)
	for _, name := range n.names() {
		n.Update(name, func(f *Faults) { f.Disconnect, f.FailPublish = false, false })
	}
}

func (n *Network) names() (names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range n.nodes {
		names = append(names, name)
	}
	return names
}

// interruptLocked ends the connection. What is in transit to it is lost.
func (n *Node) interruptLocked() {
	n.connection++
	var channels []string
	for channel := range n.subscribed {
		channels = append(channels, channel)
	}
	n.queue.Add(func() { n.events.Interrupted(channels) })
}

// restoreLocked confirms all subscriptions on a new connection.
func (n *Node) restoreLocked() {
	for channel := range n.subscribed {
		n.confirm(channel)
	}
}

// confirm queues the confirmation of a subscription, before anything that is published later.
func (n *Node) confirm(channel string) { n.queue.Add(func() { n.events.Confirmed(channel) }) }

// SetSubscribed changes a subscription.
func (n *Node) SetSubscribed(channel cluster.Channel, subscribed bool) {
	n.network.mu.Lock()
	defer n.network.mu.Unlock()
	if !subscribed {
		delete(n.subscribed, channel.Name)
		return
	}
	n.subscribed[channel.Name] = true
	if !n.Disconnect {
		n.confirm(channel.Name)
	}
}

// Probes returns one probe while the node is connected.
func (n *Node) Probes() []cluster.Probe {
	n.network.mu.Lock()
	defer n.network.mu.Unlock()
	if n.Disconnect {
		return nil
	}
	return []cluster.Probe{{Channel: n.probe(), Idle: time.Hour}}
}

func (n *Node) probe() cluster.Channel {
	return n.network.Channel("probe", n.name+strconv.Itoa(n.connection))
}

// Suspect is Reconnect: what the connection has lost does not arrive any more.
func (n *Node) Suspect(probe cluster.Channel) { n.Reconnect(probe) }

// Reconnect replaces the connection, which ends the fault Deaf.
func (n *Node) Reconnect(probe cluster.Channel) {
	n.network.mu.Lock()
	defer n.network.mu.Unlock()
	if n.Disconnect || probe != n.probe() {
		return
	}
	n.Deaf = false
	n.interruptLocked()
	n.restoreLocked()
}

// Path returns the only path.
func (*Node) Path(int) string { return "" }

// Publish publishes a batch.
func (n *Node) Publish(ctx context.Context, batch []*cluster.Message) {
	n.network.mu.Lock()
	stalled := n.Stall
	n.network.mu.Unlock()
	if stalled {
		<-ctx.Done()
	}
	n.network.mu.Lock()
	defer n.network.mu.Unlock()
	for _, m := range batch {
		switch {
		case n.closed, stalled, n.FailPublish, n.MaxBytes > 0 && len(m.Payload) > n.MaxBytes:
			m.Err = errFault
		case n.Lose:
		default:
			n.deliverLocked(m)
		}
	}
}

// deliverLocked sends a message to all subscribers.
func (n *Node) deliverLocked(m *cluster.Message) {
	for _, to := range n.network.nodes {
		if to.Disconnect || to.Deaf || !to.subscribed[m.Channel.Name] && to.probe() != m.Channel {
			continue
		}
		to.sendLocked(n, m)
		if n.Duplicate {
			to.sendLocked(n, m)
		}
	}
}

// sendLocked queues a message of a node for this one.
func (n *Node) sendLocked(from *Node, m *cluster.Message) {
	connection, channel, payload := n.connection, m.Channel.Name, m.Payload
	receive := func() {
		n.network.mu.Lock()
		lost := n.connection != connection || n.closed
		n.network.mu.Unlock()
		if !lost {
			n.events.Received(channel, payload)
		}
	}
	if from.Delay == 0 && n.senders[from.name] == nil {
		n.queue.Add(receive)
		return
	}
	if n.senders[from.name] == nil {
		n.senders[from.name] = &executor.FuncQueue{}
	}
	at := time.Now().Add(from.Delay)
	n.senders[from.name].Add(func() {
		time.Sleep(time.Until(at))
		n.queue.Add(receive)
	})
}

// Close ends the connection.
func (n *Node) Close() {
	n.network.mu.Lock()
	defer n.network.mu.Unlock()
	n.closed = true
	delete(n.network.nodes, n.name)
}
