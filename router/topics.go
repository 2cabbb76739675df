package router

import (
	"hash/maphash"
	"sync"
)

// topics are what connections of this process subscribe to.
type topics struct {
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
	subscriptions int // guarded by the shard's lock; the topic is dropped at 0

	mu      sync.Mutex
	members map[*Conn]struct{}
}

func (t *topics) init() {
	t.seed = maphash.MakeSeed()
	for i := range t.shards {
		t.shards[i].topics = map[string]*topic{}
	}
}

func (t *topics) shard(name string) *topicShard {
	return &t.shards[maphash.String(t.seed, name)%topicShards]
}

// add subscribes c, which must not be subscribed.
func (t *topics) add(name string, c *Conn) {
	s := t.shard(name)
	s.mu.Lock()
	to := s.topics[name]
	if to == nil {
		to = &topic{members: map[*Conn]struct{}{}}
		s.topics[name] = to
	}
	to.subscriptions++
	s.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	to.members[c] = struct{}{}
}

// remove unsubscribes c, which must be subscribed.
func (t *topics) remove(name string, c *Conn) {
	s := t.shard(name)
	s.mu.Lock()
	from := s.topics[name]
	if from.subscriptions--; from.subscriptions == 0 {
		delete(s.topics, name)
	}
	s.mu.Unlock()
	from.mu.Lock()
	defer from.mu.Unlock()
	delete(from.members, c)
}

func (t *topics) find(name string) *topic {
	s := t.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.topics[name]
}

// publish queues a message for every member but one, which may be nil. It holds
// the topic's lock meanwhile, so that all members see one order; nothing under it
// waits.
func (t *topics) publish(name string, except *Conn, m Message) error {
	frame, err := encode(m)
	if err != nil {
		return err
	}
	defer frame.Release()
	to := t.find(name)
	if to == nil {
		return nil
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	for c := range to.members {
		if c == except {
			continue
		}
		frame.Retain()
		_ = c.send(frame) // a member that has gone is nobody's error
	}
	return nil
}
