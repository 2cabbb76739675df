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
	mu      sync.Mutex
	members map[string]map[*Conn]struct{}
}

func (t *topics) init() {
	t.seed = maphash.MakeSeed()
	for i := range t.shards {
		t.shards[i].members = map[string]map[*Conn]struct{}{}
	}
}

func (t *topics) shard(topic string) *topicShard {
	return &t.shards[maphash.String(t.seed, topic)%topicShards]
}

func (t *topics) add(topic string, c *Conn) {
	s := t.shard(topic)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.members[topic] == nil {
		s.members[topic] = map[*Conn]struct{}{}
	}
	s.members[topic][c] = struct{}{}
}

func (t *topics) remove(topic string, c *Conn) {
	s := t.shard(topic)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members[topic], c)
	if len(s.members[topic]) == 0 {
		delete(s.members, topic)
	}
}

// publish queues a message for every member but one, which may be nil. It holds
// the lock meanwhile, so that all members see one order; nothing under it waits.
func (t *topics) publish(topic string, except *Conn, m Message) error {
	frame, err := encode(m)
	if err != nil {
		return err
	}
	defer frame.Release()
	s := t.shard(topic)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.members[topic] {
		if c == except {
			continue
		}
		frame.Retain()
		_ = c.send(frame) // a member that has gone is nobody's error
	}
	return nil
}
