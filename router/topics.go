package router

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// topics are what connections of this node subscribe to.
type topics struct {
	router *Router
	seed   maphash.Seed
	shards [topicShards]topicShard
}

const topicShards = 64

type topicShard struct {
	mu     sync.Mutex
	topics map[string]*topic
}

// A topic has a lock of its own, so that a publish to many delays no other topic.
type topic struct {
	name          string
	subscriptions int // guarded by the shard's lock; the topic is dropped at 0

	mu       sync.Mutex
	members  map[*Conn]struct{}
	dropped  bool // from the shard
	presence presence
}

func (t *topics) init(r *Router) {
	t.router = r
	t.seed = maphash.MakeSeed()
	for i := range t.shards {
		t.shards[i].topics = map[string]*topic{}
	}
}

// maxTopicBytes bounds a topic's name.
const maxTopicBytes = 256

func checkTopic(name string) error {
	if len(name) == 0 || len(name) > maxTopicBytes {
		return errors.Errorf(errors.InvalidArgument, "a topic's name must have 1 to %d bytes, not %d", maxTopicBytes, len(name))
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return errors.Errorf(errors.InvalidArgument, "a topic's name must be UTF-8 without control characters, unlike %+q", name)
	}
	return nil
}

func (t *topics) shard(name string) *topicShard {
	return &t.shards[maphash.String(t.seed, name)%topicShards]
}

// add subscribes c, which must not be subscribed.
func (t *topics) add(name string, c *Conn) {
	s := t.shard(name)
	s.mu.Lock()
	if to := s.topics[name]; to != nil {
		to.subscriptions++
		s.mu.Unlock()
		to.mu.Lock()
		defer to.mu.Unlock()
		to.members[c] = struct{}{}
		return
	}
	defer s.mu.Unlock()
	s.topics[name] = &topic{name: name, subscriptions: 1, members: map[*Conn]struct{}{c: {}}}
	t.router.session.Subscribe(name)
}

// remove unsubscribes c, which must be subscribed.
func (t *topics) remove(name string, c *Conn) {
	s := t.shard(name)
	s.mu.Lock()
	from := s.topics[name]
	if from.subscriptions--; from.subscriptions > 0 {
		s.mu.Unlock()
		from.mu.Lock()
		defer from.mu.Unlock()
		t.unsubscribe(from, c)
		return
	}
	defer s.mu.Unlock() // who enters the topic anew is told of after who leaves it now
	delete(s.topics, name)
	defer t.drop(from, c) // even if the broker calls runtime.Goexit
	t.router.session.Unsubscribe(name)
}

// drop ends a topic that has lost its last subscriber, c.
func (t *topics) drop(from *topic, c *Conn) {
	from.mu.Lock()
	defer from.mu.Unlock()
	from.dropped = true
	t.unsubscribe(from, c)
	for node := range from.presence.remote {
		t.removeNode(from, node)
	}
}

// unsubscribe must be called with the topic's lock held.
func (t *topics) unsubscribe(from *topic, c *Conn) {
	delete(from.members, c)
	t.removeLocalMember(from, c)
}

func (t *topics) find(name string) *topic {
	s := t.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.topics[name]
}

// lock returns a topic with its lock held, or nil if there is none. It may have been dropped
// between being found and being locked.
func (t *topics) lock(name string) *topic {
	to := t.find(name)
	if to == nil {
		return nil
	}
	to.mu.Lock()
	if to.dropped {
		to.mu.Unlock()
		return nil
	}
	return to
}

// publish queues a message for every member but one, which may be nil, and gives it to
// the broker if it is for other nodes too.
func (t *topics) publish(name string, except *Conn, m Message, allNodes bool) error {
	if err := checkTopic(name); err != nil {
		return err
	}
	frame, err := encode(m)
	if err != nil {
		return err
	}
	defer frame.Release()
	receivers := 0
	if to := t.find(name); to != nil {
		receivers = to.deliver(frame, except)
	}
	t.router.observe(Event{Kind: EventPublished, Count: receivers})
	if allNodes && t.router.opts.Broker != nil {
		t.router.session.Publish(name, messagePacket(frame))
	}
	return nil
}

// deliver holds the topic's lock, so that all members see one order; nothing under it
// waits. It returns for how many members it has queued the frame.
func (t *topic) deliver(frame *wsconn.Frame, except *Conn) (receivers int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.members {
		if c == except {
			continue
		}
		frame.Retain()
		if c.send(frame) == nil { // a member that has gone is nobody's error
			receivers++
		}
	}
	return receivers
}

// receive takes a packet from another node.
func (t *topics) receive(name, from string, packet []byte) {
	if len(packet) == 0 {
		return
	}
	kind, body := packet[0], packet[1:]
	if kind == packetMessage {
		t.receiveMessage(name, body)
		return
	}
	if to := t.lock(name); to != nil {
		defer to.mu.Unlock()
		t.receivePresence(to, from, kind, body)
	}
}

func (t *topics) receiveMessage(name string, body []byte) {
	to := t.find(name)
	if to == nil {
		return
	}
	frame, published := parseMessagePacket(body)
	if frame == nil {
		return
	}
	defer frame.Release()
	if t.router.observer == nil {
		to.deliver(frame, nil)
		return
	}
	frame.At = time.Now()
	lag := frame.At.Sub(published)
	t.router.observe(Event{Kind: EventDelivered, Count: to.deliver(frame, nil), Duration: max(lag, 0)})
}

// subscribed tells the other nodes who is here, and asks them the same, because what
// happened until now may have been missed.
func (t *topics) subscribed(name string) {
	to := t.lock(name)
	if to == nil {
		return
	}
	defer to.mu.Unlock()
	if to.presence.tracked {
		t.receivePresence(to, "", packetPresenceQuery, nil)
		t.queryPresence(to)
	}
}

// missed asks who is there if something about members may be among what was lost. In an
// interruption nobody could answer; after it, subscribed asks.
func (t *topics) messagesLost(name string, packets int) {
	if packets > 0 {
		t.subscribed(name)
	}
	t.router.observe(Event{Kind: EventMessagesLost, Count: packets})
	if t.router.opts.OnMessagesLost == nil {
		return
	}
	t.router.events.Add(func() {
		t.router.hook("OnMessagesLost", func() { t.router.opts.OnMessagesLost(name, packets) })
	})
}

// down forgets the members on a node.
func (t *topics) nodeLeft(node string) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		all := slices.Collect(maps.Values(s.topics))
		s.mu.Unlock()
		for _, of := range all {
			of.mu.Lock()
			t.removeNode(of, node)
			of.mu.Unlock()
		}
	}
}
