package memory

import (
	"strconv"
	"sync"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/executor"
)

// A Broker is a [broker.Broker] for several routers in one process, and for tests with several
// nodes. It loses no packets: those that a node has not handled yet wait in memory, without a
// bound. It is safe for concurrent use.
type Broker struct {
	mu        sync.Mutex
	sessions  map[*session]struct{} // those that are not closed
	connected int                   // sessions, also closed ones
}

var _ broker.Broker = (*Broker)(nil)

// NewBroker returns a broker without nodes.
func NewBroker() *Broker { return &Broker{sessions: map[*session]struct{}{}} }

// Connect adds a node.
func (b *Broker) Connect(handler broker.Handler) broker.Session {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.connected++
	s := &session{broker: b, handler: handler, name: strconv.Itoa(b.connected), topics: map[string]struct{}{}}
	b.sessions[s] = struct{}{}
	return s
}

// A session is a node. Its handler is called by its queue, so that a publisher waits for no
// other node. Calls are queued with the broker's lock held, which makes their order that of the
// publications; the handler is called without the lock.
type session struct {
	broker  *Broker
	handler broker.Handler
	name    string
	topics  map[string]struct{} // guarded by the broker's lock
	queue   executor.FuncQueue
}

// Subscribe requests the packets that other nodes publish on topic.
func (s *session) Subscribe(topic string) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	s.topics[topic] = struct{}{}
	s.queue.Add(func() { s.handler.Subscribed(topic) })
}

// Unsubscribe undoes Subscribe.
func (s *session) Unsubscribe(topic string) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	delete(s.topics, topic)
}

// Publish sends a packet to the other nodes that subscribe to topic.
func (s *session) Publish(topic string, packet []byte) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if _, ok := s.broker.sessions[s]; !ok {
		return
	}
	for other := range s.broker.sessions {
		if _, ok := other.topics[topic]; ok && other != s {
			other.queue.Add(func() { other.handler.Receive(topic, s.name, packet) })
		}
	}
}

// Close removes the node.
func (s *session) Close() {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if _, ok := s.broker.sessions[s]; !ok {
		return
	}
	delete(s.broker.sessions, s)
	for other := range s.broker.sessions {
		other.queue.Add(func() { other.handler.NodeLeft(s.name) })
	}
}
