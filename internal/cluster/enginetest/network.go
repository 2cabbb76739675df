// Package enginetest is an engine in memory for tests, into which faults are injected. It uses no
// real time, so it works in a testing/synctest bubble.
package enginetest

import (
	"cmp"
	"context"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/executor"
)

// A Network is an engine. It is safe for concurrent use.
type Network struct {
	mu      sync.Mutex
	nodes   []*Node            // those that are not closed, in the order of Connect
	joined  int                // calls of Connect
	readers map[string][]*Node // the nodes that subscribe to a channel, in the order of Connect, by its name
	rng     *rand.Rand         // nil unless messages are delayed by chance
	chances Chances
}

var _ cluster.Engine = (*Network)(nil)

// New returns a network without nodes or faults.
func New() *Network { return &Network{readers: map[string][]*Node{}} }

// A Node is the link of a node. Its exported fields are its faults; change them with Update.
type Node struct {
	network *Network
	number  int // in the order of Connect
	name    string
	events  cluster.Events
	queue   executor.FuncQueue             // calls of events
	senders map[string]*executor.FuncQueue // delayed messages, by publisher
	arrived map[lane]time.Time             // when the last message arrives, if the network has a seed
	held    []func()                       // calls of events that wait while the node is paused
	resumed chan struct{}                  // closed when the node is not paused any more

	// Guarded by the network's lock.
	subscribed map[string]*subscription // by name of the channel
	connection int                      // counts the connections of this node
	probing    cluster.Channel          // of the probes of the current connection
	closed     bool
	Faults
}

// A subscription is to a channel.
type subscription struct{ inEffect, confirmed bool }

// Faults are the faults of one node.
type Faults struct {
	// FailPublish makes Publish return errors, and publish nothing.
	FailPublish bool

	// Lose silently discards what the node publishes, though Publish returns no error.
	Lose bool

	// Stall makes Publish block until its context is done, without publishing.
	Stall bool

	// Pause lets what the node publishes and receives wait until it is reset.
	Pause bool

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
	n.joined++
	node := &Node{network: n, number: n.joined, name: name, events: events, subscribed: map[string]*subscription{}, senders: map[string]*executor.FuncQueue{}, arrived: map[lane]time.Time{}}
	node.probing = node.probe()
	n.nodes = append(n.nodes, node)
	return node
}

// Update changes the faults of a node, given its name.
func (n *Network) Update(name string, change func(*Faults)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := slices.IndexFunc(n.nodes, func(node *Node) bool { return node.name == name })
	if at < 0 {
		return
	}
	node := n.nodes[at]
	was, wasPaused := node.Disconnect, node.Pause
	change(&node.Faults)
	node.pauseLocked(wasPaused)
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
	for _, node := range n.nodes {
		names = append(names, node.name)
	}
	return names
}

// interruptLocked ends the connection. What is in transit to it is lost.
func (n *Node) interruptLocked() {
	n.connection++
	n.probing = n.probe()
	var channels []string
	for channel := range n.subscribed {
		channels = append(channels, channel)
	}
	n.addLocked(func() { n.events.Interrupted(channels) })
}

// restoreLocked confirms all subscriptions on a new connection.
func (n *Node) restoreLocked() {
	for _, channel := range slices.Sorted(maps.Keys(n.subscribed)) {
		n.subscribed[channel].inEffect = false
		n.subscribeLocked(channel, n.subscribed[channel])
	}
}

// subscribeLocked brings a subscription into effect and confirms it, before anything that is
// published later.
func (n *Node) subscribeLocked(channel string, sub *subscription) {
	connection := n.connection
	ifCurrent := func(f func()) func() {
		return func() {
			if n.subscribed[channel] == sub && n.connection == connection {
				f()
			}
		}
	}
	n.network.laterLocked(ifCurrent(func() {
		sub.inEffect = true
		n.network.laterLocked(ifCurrent(func() {
			sub.confirmed = true
			n.addLocked(func() { n.events.Confirmed(channel) })
		}))
	}))
}

// SetSubscribed changes a subscription.
func (n *Node) SetSubscribed(channel cluster.Channel, subscribed bool) {
	n.network.mu.Lock()
	defer n.network.mu.Unlock()
	if !subscribed {
		delete(n.subscribed, channel.Name)
		n.removeReaderLocked(channel.Name)
		return
	}
	sub := &subscription{}
	readers := n.network.readers[channel.Name]
	if at, found := slices.BinarySearchFunc(readers, n, byNumber); !found && !n.closed {
		n.network.readers[channel.Name] = slices.Insert(readers, at, n)
	}
	n.subscribed[channel.Name] = sub
	if !n.Disconnect {
		n.subscribeLocked(channel.Name, sub)
	}
}

// removeReaderLocked removes the node from the readers of a channel, if it is one.
func (n *Node) removeReaderLocked(channel string) {
	readers := slices.DeleteFunc(n.network.readers[channel], func(other *Node) bool { return other == n })
	if len(readers) == 0 {
		delete(n.network.readers, channel)
		return
	}
	n.network.readers[channel] = readers
}

func byNumber(a, b *Node) int { return cmp.Compare(a.number, b.number) }

// Probes returns one probe while the node is connected.
func (n *Node) Probes() []cluster.Probe {
	n.network.mu.Lock()
	defer n.network.mu.Unlock()
	if n.Disconnect {
		return nil
	}
	return []cluster.Probe{{Channel: n.probing, Idle: time.Hour}}
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
	if n.Disconnect || probe != n.probing {
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
	stalled, resumed := n.Stall, n.resumed
	n.network.mu.Unlock()
	if stalled {
		<-ctx.Done()
	}
	if resumed != nil {
		select {
		case <-resumed:
		case <-ctx.Done():
			stalled = true
		}
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

// deliverLocked sends a message to all subscribers. A probe has none, and returns to its node.
func (n *Node) deliverLocked(m *cluster.Message) {
	readers := n.network.readers[m.Channel.Name]
	if m.Channel == n.probing {
		readers = []*Node{n}
	}
	for _, to := range readers {
		sub := to.subscribed[m.Channel.Name]
		if to.Disconnect || to.Deaf || (sub == nil || !sub.inEffect) && to.probing != m.Channel || n.network.happensLocked(n.network.chances.Lose) {
			continue
		}
		to.sendLocked(n, m, sub)
		if n.Duplicate || n.network.happensLocked(n.network.chances.Repeat) {
			to.sendLocked(n, m, sub)
		}
	}
}

// sendLocked queues a message of a node for this one. What an earlier subscription has left in transit does not arrive
// after the confirmation of a later one.
func (n *Node) sendLocked(from *Node, m *cluster.Message, sub *subscription) {
	connection, channel, payload := n.connection, m.Channel.Name, m.Payload
	receive := func() {
		n.network.mu.Lock()
		current := n.subscribed[channel]
		lost := n.connection != connection || n.closed || current != nil && current != sub && current.confirmed
		n.network.mu.Unlock()
		if !lost {
			n.events.Received(channel, payload)
		}
	}
	if n.network.rng != nil {
		n.arriveLocked(from, m.Channel.Partition, receive)
		return
	}
	if from.Delay == 0 && n.senders[from.name] == nil {
		n.addLocked(receive)
		return
	}
	if n.senders[from.name] == nil {
		n.senders[from.name] = &executor.FuncQueue{}
	}
	at := time.Now().Add(from.Delay)
	n.senders[from.name].Add(func() {
		time.Sleep(time.Until(at))
		n.network.mu.Lock()
		defer n.network.mu.Unlock()
		n.addLocked(receive)
	})
}

// Close ends the connection.
func (n *Node) Close() {
	n.network.mu.Lock()
	defer n.network.mu.Unlock()
	n.closed = true
	for channel := range n.subscribed {
		n.removeReaderLocked(channel)
	}
	n.network.nodes = slices.DeleteFunc(n.network.nodes, func(other *Node) bool { return other == n })
}
