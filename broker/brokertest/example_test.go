package brokertest_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/errors"
)

// A Broker is the simplest correct broker: its nodes are in one process, and what they have not
// handled yet waits in memory without a bound.
type Broker struct {
	mu        sync.Mutex
	connected int
	nodes     map[*node]bool // those that are not closed
}

var _ broker.Broker = (*Broker)(nil)

// Connect adds a node.
func (b *Broker) Connect(handler broker.Callbacks) broker.Node {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.connected++
	s := &node{
		broker:  b,
		handler: handler,
		name:    strconv.Itoa(b.connected),
		topics:  map[string]bool{},
		tracked: map[string]bool{},
		members: map[member]string{},
		wake:    make(chan struct{}, 1),
	}
	b.nodes[s] = true
	go s.run()
	return s
}

// A node queues calls of its handler, so that no method waits for the handler of any node.
// The broker's mutex guards topics, tracked, members and calls.
type node struct {
	broker  *Broker
	handler broker.Callbacks
	name    string
	topics  map[string]bool
	tracked map[string]bool
	members map[member]string // data
	calls   []func()
	wake    chan struct{} // calls were added, or the node was closed
	running sync.Mutex    // held while a function of the handler runs
	closed  bool          // guarded by running
}

type member struct{ topic, id string }

// add queues a call of the handler. The mutex must be held.
func (s *node) add(call func()) {
	s.calls = append(s.calls, call)
	s.notify()
}

func (s *node) notify() {
	select {
	case s.wake <- struct{}{}:
	default: // run has not read the last signal yet
	}
}

// run calls the handler, without the mutex, until the node is closed.
func (s *node) run() {
	for range s.wake {
		s.broker.mu.Lock()
		open, calls := s.broker.nodes[s], s.calls
		s.calls = nil
		s.broker.mu.Unlock()
		if !open {
			return
		}
		for _, call := range calls {
			s.running.Lock()
			if !s.closed {
				call()
			}
			s.running.Unlock()
		}
	}
}

// Name returns the number of the node.
func (s *node) Name() string { return s.name }

// Nodes returns the other nodes.
func (s *node) Nodes() (others []string, all bool) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if !s.broker.nodes[s] {
		return nil, false
	}
	for other := range s.broker.nodes {
		if other != s {
			others = append(others, other.name)
		}
	}
	return others, true
}

// Subscribe adds a topic. Subscribed is queued under the mutex, and therefore before the first
// packet.
func (s *node) Subscribe(topic string) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	s.topics[topic] = true
	s.add(func() { s.handler.Subscribed(topic) })
}

// Unsubscribe removes a topic.
func (s *node) Unsubscribe(topic string) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	delete(s.topics, topic)
}

// Publish queues a packet for every other node that subscribes to the topic.
func (s *node) Publish(topic string, packet []byte) error {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if !s.broker.nodes[s] {
		return errors.Errorf(errors.Unavailable, "the node is closed")
	}
	for other := range s.broker.nodes {
		if other != s && other.topics[topic] {
			other.add(func() { other.handler.Receive(topic, s.name, packet) })
		}
	}
	return nil
}

// Join adds a member. Other data replaces that of a present one.
func (s *node) Join(topic, id, data string) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	m := member{topic, id}
	old, present := s.members[m]
	if !s.broker.nodes[s] || present && old == data {
		return
	}
	s.remove(m)
	s.members[m] = data
	s.notifyOthers(m, true)
}

// Leave removes a member.
func (s *node) Leave(topic, id string) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if s.broker.nodes[s] {
		s.remove(member{topic, id})
	}
}

// remove removes a member if it is present. The mutex must be held.
func (s *node) remove(m member) {
	if _, ok := s.members[m]; ok {
		s.notifyOthers(m, false)
		delete(s.members, m)
	}
}

// notifyOthers reports a change to the nodes that track the topic. The mutex must be held.
func (s *node) notifyOthers(m member, joined bool) {
	for other := range s.broker.nodes {
		if other != s && other.tracked[m.topic] {
			other.presenceChanged(s, m, joined)
		}
	}
}

// presenceChanged queues a report about a member of another node. The mutex must be held.
func (s *node) presenceChanged(other *node, m member, joined bool) {
	changed := broker.Member{Node: other.name, ID: m.id, Data: other.members[m]}
	s.add(func() { s.handler.PresenceChanged(m.topic, changed, joined) })
}

// Track reports the members of a topic on other nodes.
func (s *node) Track(topic string) { s.setTracked(topic, true) }

// Untrack reports them as left.
func (s *node) Untrack(topic string) { s.setTracked(topic, false) }

func (s *node) setTracked(topic string, tracked bool) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if !s.broker.nodes[s] || s.tracked[topic] == tracked {
		return
	}
	s.tracked[topic] = tracked
	for other := range s.broker.nodes {
		for m := range other.members {
			if other != s && m.topic == topic {
				s.presenceChanged(other, m, tracked)
			}
		}
	}
}

// Close removes the node. What it has published is already queued for the others.
func (s *node) Close(context.Context) error {
	s.leave()
	s.running.Lock() // waits for the handler
	defer s.running.Unlock()
	s.closed = true
	return nil
}

func (s *node) leave() {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if !s.broker.nodes[s] {
		return
	}
	for m := range s.members {
		s.remove(m)
	}
	delete(s.broker.nodes, s)
	s.notify()
	for other := range s.broker.nodes {
		other.add(func() { other.handler.NodeLeft(s.name) })
	}
}

// A test calls Run of each case. This example calls Check, which returns the error.
func ExampleCases() {
	broken := 0
	for _, c := range brokertest.Cases() {
		b := &Broker{nodes: map[*node]bool{}}
		err := c.Check(brokertest.Cluster{
			Connect:     b.Connect,
			Timeout:     10 * time.Second,
			QuietPeriod: 5 * time.Millisecond,
		})
		if err != nil {
			broken++
			fmt.Printf("%s: %v\nrule: %s\n", c.Name, err, c.Rule)
		}
	}
	fmt.Println("broken rules:", broken)
	// Output: broken rules: 0
}
