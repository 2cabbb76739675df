package redis

import (
	"hash/fnv"
	"slices"
	"sync"

	"github.com/penstock-go/penstock/adapters/redis/internal/pubsub"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/executor"
)

// historyChannel is the kind of the channels on which scripts publish.
const historyChannel cluster.Kind = "history"

// A historyEngine is the engine of a node that uses histories: it receives their channels on the
// same connections as the others, whose probes prove that these work.
type historyEngine struct {
	*pubsub.Engine
	follows *follows
	link    cluster.Link // of the node
}

// Connect adds the node.
func (e *historyEngine) Connect(node string, events cluster.Events) cluster.Link {
	f := e.follows
	e.link = e.Engine.Connect(node, cluster.Events{
		Received: func(channel string, payload []byte) {
			if topic := f.find(channel); topic != nil {
				f.received(topic, payload)
				return
			}
			events.Received(channel, payload)
		},
		Confirmed: func(channel string) {
			if topic := f.find(channel); topic != nil {
				f.confirmed(topic)
				return
			}
			events.Confirmed(channel)
		},
		Interrupted: func(channels []string) { // Confirmed follows for each
			channels = slices.DeleteFunc(channels, func(channel string) bool { return f.find(channel) != nil })
			if len(channels) > 0 {
				events.Interrupted(channels)
			}
		},
	})
	return e.link
}

// follows are the topics that a node follows, by the names of their channels.
//
// Locks, in the order of acquisition: one of follows.calls, that of the topic, is held while the
// handler is called; that of follows.gate is held for reading meanwhile, and close acquires it for writing.
// The handler may hold its own locks when it calls Follow or Unfollow, so these acquire follows.mu
// alone, under which the link is called.
type follows struct {
	handler broker.HistoryCallbacks

	mu        sync.RWMutex
	byChannel map[string]*follow // nil after close

	calls [64]sync.Mutex // by hash of the topic, so that it does not change if the topic is followed again

	gate executor.Gate // calls the handler
}

type follow struct {
	topic string
	calls *sync.Mutex
}

func (f *follows) find(channel string) *follow {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.byChannel[channel]
}

// Follow requests the publications of a topic.
func (s *historyNode) Follow(topic string) {
	s.follows.mu.Lock()
	defer s.follows.mu.Unlock()
	if s.follows.byChannel == nil {
		return
	}
	channel := s.keysOf(topic).channel
	s.follows.byChannel[channel.Name] = &follow{topic, &s.follows.calls[hashOf(topic)%uint32(len(s.follows.calls))]}
	s.link.SetSubscribed(channel, true)
}

func hashOf(topic string) uint32 {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(topic))
	return hash.Sum32()
}

// Unfollow undoes Follow.
func (s *historyNode) Unfollow(topic string) {
	s.follows.mu.Lock()
	defer s.follows.mu.Unlock()
	channel := s.keysOf(topic).channel
	if s.follows.byChannel[channel.Name] == nil {
		return
	}
	delete(s.follows.byChannel, channel.Name)
	s.link.SetSubscribed(channel, false)
}

func (f *follows) received(topic *follow, payload []byte) {
	p, ok := parseFrame(string(payload))
	if !ok {
		return
	}
	f.call(topic, func() { f.handler.Published(topic.topic, p) })
}

func (f *follows) confirmed(topic *follow) {
	f.call(topic, func() { f.handler.Following(topic.topic) })
}

// call calls the handler unless the node is closed.
func (f *follows) call(topic *follow, call func()) {
	topic.calls.Lock()
	defer topic.calls.Unlock()
	f.gate.Do(call)
}

// close waits for the handler and prevents further calls of it.
func (f *follows) close() {
	f.gate.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.byChannel = nil
}
