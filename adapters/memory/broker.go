package memory

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/memstore"
)

// A Broker is a [broker.HistoryBroker] for several routers in one process, and for tests with
// several nodes. It loses no packets: those that a node has not handled yet wait in memory, without
// a bound. It is safe for concurrent use.
type Broker struct {
	mu        sync.Mutex
	nodes     map[*node]struct{} // those that are not closed
	connected int                // nodes, also closed ones
	histories memstore.Hub
}

var _ broker.Broker = (*Broker)(nil)

// NewBroker returns a broker without nodes. All histories together use up to 256 MiB.
func NewBroker() *Broker { return NewBrokerMaxHistoryBytes(memstore.DefaultMaxBytes) }

// NewBrokerMaxHistoryBytes returns a broker without nodes. It panics if maxHistoryBytes is less than 1.
//
// The histories of all topics use up to maxHistoryBytes together: packets, names, keys, and the
// data structures that contain them. Values, such as sessions, use up to a quarter of it in addition. If that is not enough, what has expired is removed first;
// then Append and StoreValue return a RESOURCE_EXHAUSTED error and change nothing. Topics can still be
// read, and publications that replace others are stored. A topic uses memory from its first publication
// on: reading one that was never used stores nothing.
func NewBrokerMaxHistoryBytes(maxHistoryBytes int64) *Broker {
	if maxHistoryBytes < 1 {
		panic(fmt.Sprintf("memory: maxHistoryBytes is %d; it must be at least 1", maxHistoryBytes))
	}
	return &Broker{nodes: map[*node]struct{}{}, histories: memstore.Hub{Store: memstore.Store{MaxBytes: maxHistoryBytes}}}
}

// Connect adds a node.
func (b *Broker) Connect(handler broker.Callbacks) broker.Node { return b.connect(handler) }

func (b *Broker) connect(handler broker.Callbacks) *node {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.connected++
	s := &node{
		broker:  b,
		handler: handler.Complete(),
		name:    strconv.Itoa(b.connected),
		topics:  map[string]struct{}{},
		tracked: map[string]struct{}{},
		members: map[string]map[string]string{},
	}
	b.nodes[s] = struct{}{}
	return s
}

// A node has a queue. Its handler is called by its queue, so that a publisher waits for no
// other node. Calls are queued with the broker's lock held, which makes their order that of the
// publications; the handler is called without the lock.
type node struct {
	broker  *Broker
	handler broker.Callbacks
	name    string
	topics  map[string]struct{}          // guarded by the broker's lock, like the next two
	tracked map[string]struct{}          // topics
	members map[string]map[string]string // data of the members on this node, by topic and ID
	queue   executor.FuncQueue
	gate    executor.Gate // calls the handler, on the queue
}

// add queues a call of the handler.
func (s *node) add(call func()) {
	s.queue.Add(func() { s.gate.Do(call) })
}

// Name returns the name of the node: its number.
func (s *node) Name() string { return s.name }

// Nodes returns the other nodes. All are known, unless the node is closed.
func (s *node) Nodes() (others []string, all bool) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if s.isClosedLocked() {
		return nil, false
	}
	for other := range s.broker.nodes {
		if other != s {
			others = append(others, other.name)
		}
	}
	return others, true
}

// Subscribe requests the packets that other nodes publish on topic.
func (s *node) Subscribe(topic string) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	s.topics[topic] = struct{}{}
	s.add(func() { s.handler.Subscribed(topic) })
}

func (s *node) Unsubscribe(topic string) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	delete(s.topics, topic)
}

// Publish sends a packet to the other nodes that subscribe to topic. It fails only after Close.
func (s *node) Publish(topic string, packet []byte) error {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if s.isClosedLocked() {
		return errors.Errorf(errors.Unavailable, "the node is closed; a packet of %d bytes was not sent", len(packet))
	}
	for other := range s.broker.nodes {
		if _, ok := other.topics[topic]; ok && other != s {
			other.add(func() { other.handler.Receive(topic, s.name, packet) })
		}
	}
	return nil
}

// Join makes a member of this node present in topic.
func (s *node) Join(topic, id, data string) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	old, ok := s.members[topic][id]
	if s.isClosedLocked() || ok && old == data {
		return
	}
	if ok {
		s.notifyOthersLocked(topic, broker.Member{Node: s.name, ID: id, Data: old}, false)
	}
	if s.members[topic] == nil {
		s.members[topic] = map[string]string{}
	}
	s.members[topic][id] = data
	s.notifyOthersLocked(topic, broker.Member{Node: s.name, ID: id, Data: data}, true)
}

func (s *node) Leave(topic, id string) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	data, ok := s.members[topic][id]
	if s.isClosedLocked() || !ok {
		return
	}
	if delete(s.members[topic], id); len(s.members[topic]) == 0 {
		delete(s.members, topic)
	}
	s.notifyOthersLocked(topic, broker.Member{Node: s.name, ID: id, Data: data}, false)
}

// Track requests the members that other nodes have in topic.
func (s *node) Track(topic string) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if _, ok := s.tracked[topic]; ok || s.isClosedLocked() {
		return
	}
	s.tracked[topic] = struct{}{}
	s.notifyAllLocked(topic, true)
}

func (s *node) Untrack(topic string) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if _, ok := s.tracked[topic]; ok && !s.isClosedLocked() {
		s.notifyAllLocked(topic, false)
		delete(s.tracked, topic)
	}
}

// isClosedLocked and the following methods need the lock of the broker.
func (s *node) isClosedLocked() bool {
	_, ok := s.broker.nodes[s]
	return !ok
}

// notifyOthersLocked notifies the nodes that track a topic about a member of this one.
func (s *node) notifyOthersLocked(topic string, m broker.Member, joined bool) {
	for other := range s.broker.nodes {
		if _, ok := other.tracked[topic]; ok && other != s {
			other.add(func() { other.handler.PresenceChanged(topic, m, joined) })
		}
	}
}

// notifyAllLocked notifies this node about all members of a topic on other nodes.
func (s *node) notifyAllLocked(topic string, joined bool) {
	for other := range s.broker.nodes {
		if other == s {
			continue
		}
		for id, data := range other.members[topic] {
			s.add(func() { s.handler.PresenceChanged(topic, broker.Member{Node: other.name, ID: id, Data: data}, joined) })
		}
	}
}

// Close removes the node. What it has published is already queued for the other nodes.
func (s *node) Close(context.Context) error {
	s.leave()
	s.gate.Close()
	return nil
}

func (s *node) leave() {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if s.isClosedLocked() {
		return
	}
	for topic, members := range s.members {
		for id, data := range members {
			s.notifyOthersLocked(topic, broker.Member{Node: s.name, ID: id, Data: data}, false)
		}
	}
	delete(s.broker.nodes, s)
	for other := range s.broker.nodes {
		other.add(func() { other.handler.NodeLeft(s.name) })
	}
}
