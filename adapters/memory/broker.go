package memory

import (
	"strconv"
	"sync"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/executor"
)

// A Broker is a [broker.Broker] for several routers in one process, and for tests of
// what several nodes do. It loses nothing.
type Broker struct {
	mu     sync.Mutex
	links  map[*link]struct{}
	joined int
}

var _ broker.Broker = (*Broker)(nil)

// NewBroker returns a broker without nodes.
func NewBroker() *Broker { return &Broker{links: map[*link]struct{}{}} }

// Join makes a node.
func (b *Broker) Connect(node broker.Handler) broker.Session {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.joined++
	l := &link{broker: b, node: node, name: strconv.Itoa(b.joined), topics: map[string]struct{}{}}
	b.links[l] = struct{}{}
	return l
}

// A link is a node. What it is told goes through a queue, so that who publishes waits
// for nobody.
type link struct {
	broker *Broker
	node   broker.Handler
	name   string
	topics map[string]struct{} // guarded by the broker's lock
	queue  executor.FuncQueue
}

// Subscribe asks for what others publish on topic.
func (l *link) Subscribe(topic string) {
	l.broker.mu.Lock()
	defer l.broker.mu.Unlock()
	l.topics[topic] = struct{}{}
	l.queue.Add(func() { l.node.Subscribed(topic) })
}

// Unsubscribe undoes Subscribe.
func (l *link) Unsubscribe(topic string) {
	l.broker.mu.Lock()
	defer l.broker.mu.Unlock()
	delete(l.topics, topic)
}

// Publish sends a packet to the others.
func (l *link) Publish(topic string, packet []byte) {
	l.broker.mu.Lock()
	defer l.broker.mu.Unlock()
	if _, ok := l.broker.links[l]; !ok {
		return
	}
	for other := range l.broker.links {
		if _, ok := other.topics[topic]; ok && other != l {
			other.queue.Add(func() { other.node.Receive(topic, l.name, packet) })
		}
	}
}

// Close takes the node out.
func (l *link) Close() {
	l.broker.mu.Lock()
	defer l.broker.mu.Unlock()
	if _, ok := l.broker.links[l]; !ok {
		return
	}
	delete(l.broker.links, l)
	for other := range l.broker.links {
		other.queue.Add(func() { other.node.NodeLeft(l.name) })
	}
}
