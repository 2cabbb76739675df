package memory

import (
	"context"
	"strconv"
	"sync"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
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
	calling sync.Mutex // held while a function of the handler runs
	closed  bool       // guarded by calling
}

// add queues a call of the handler.
func (s *session) add(call func()) {
	s.queue.Add(func() {
		s.calling.Lock()
		defer s.calling.Unlock()
		if !s.closed {
			call()
		}
	})
}

// Subscribe requests the packets that other nodes publish on topic.
func (s *session) Subscribe(topic string) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	s.topics[topic] = struct{}{}
	s.add(func() { s.handler.Subscribed(topic) })
}

// Unsubscribe undoes Subscribe.
func (s *session) Unsubscribe(topic string) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	delete(s.topics, topic)
}

// Publish sends a packet to the other nodes that subscribe to topic. It fails only after Close.
func (s *session) Publish(topic string, packet []byte) error {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if _, ok := s.broker.sessions[s]; !ok {
		return errors.Errorf(errors.Unavailable, "the broker's session is closed; a packet of %d bytes was not sent", len(packet))
	}
	for other := range s.broker.sessions {
		if _, ok := other.topics[topic]; ok && other != s {
			other.add(func() { other.handler.Receive(topic, s.name, packet) })
		}
	}
	return nil
}

// Close removes the node. What it has published is already queued for the other nodes.
func (s *session) Close(context.Context) error {
	s.leave()
	s.calling.Lock()
	defer s.calling.Unlock()
	s.closed = true
	return nil
}

func (s *session) leave() {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if _, ok := s.broker.sessions[s]; !ok {
		return
	}
	delete(s.broker.sessions, s)
	for other := range s.broker.sessions {
		other.add(func() { other.handler.NodeLeft(s.name) })
	}
}
