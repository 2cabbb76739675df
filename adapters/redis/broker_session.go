package redis

import (
	"context"
	"hash/fnv"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// A session is this process as a node of the cluster.
type session struct {
	handler     broker.Handler
	name        string // random, so that a restarted process is a new node
	subscribers []*subscriber
	cancel      context.CancelFunc

	mu     sync.Mutex
	closed bool
	peers  map[string]*peer // by name, including this node
}

// A peer is a node from which this one has received a message.
type peer struct {
	lastSeen time.Time
	failed   bool // NodeLeft was called; it may have been paused, and return
}

const (
	heartbeatInterval = time.Second
	peerTimeout       = 4 * time.Second // without a message; the peer has then failed
)

// subscriber returns the subscriber of a topic.
func (s *session) subscriber(topic string) *subscriber {
	if len(s.subscribers) == 1 {
		return s.subscribers[0]
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(topic))
	return s.subscribers[h.Sum32()%uint32(len(s.subscribers))]
}

// Subscribe requests the packets that other nodes publish on topic.
func (s *session) Subscribe(topic string) { s.subscriber(topic).setSubscribed(topic, true) }

// Unsubscribe undoes Subscribe.
func (s *session) Unsubscribe(topic string) { s.subscriber(topic).setSubscribed(topic, false) }

// Publish sends a packet to the other nodes that subscribe to topic.
func (s *session) Publish(topic string, packet []byte) {
	sub := s.subscriber(topic)
	sub.outbox.enqueue(sub.channel(topic), nodeMessage{kind: kindPacket, packet: packet})
}

// Close publishes a leave message and returns at once. If the message is lost, the other nodes
// expire this one.
func (s *session) Close() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return
	}
	first := s.subscribers[0]
	first.outbox.closeWith(first.nodesChannel(), nodeMessage{kind: kindLeave})
	for _, sub := range s.subscribers[1:] {
		sub.outbox.close()
	}
	s.cancel()
}

// heartbeat publishes heartbeats and expires peers until ctx ends.
func (s *session) heartbeat(ctx context.Context) {
	ticker := time.NewTicker(heartbeatInterval)
	defer ticker.Stop()
	first := s.subscribers[0]
	for {
		first.outbox.enqueue(first.nodesChannel(), nodeMessage{kind: kindHeartbeat})
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s.expirePeers()
	}
}

// markAlive records a message of a node, and reports whether the node had failed. On a Cluster, a
// message on another connection may arrive after its sender's leave message; the peer that it
// adds expires.
func (s *session) markAlive(name string) (hadFailed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[name]
	if p == nil {
		p = &peer{}
		s.peers[name] = p
	}
	hadFailed = p.failed
	*p = peer{lastSeen: time.Now()}
	return hadFailed
}

// peerLeft handles a leave message.
func (s *session) peerLeft(name string) {
	s.mu.Lock()
	p := s.peers[name]
	delete(s.peers, name)
	s.mu.Unlock()
	if p != nil && !p.failed {
		s.handler.NodeLeft(name)
	}
	for _, sub := range s.subscribers {
		sub.forgetPeer(name)
	}
}

// expirePeers marks peers as failed whose last message is older than peerTimeout, compared with
// this node's own last heartbeat: without connection, this node expires no peer. It keeps the
// trackers of a failed peer for forgetAfter, because the peer may only have been paused.
func (s *session) expirePeers() {
	s.mu.Lock()
	var failed, forgotten []string
	if self := s.peers[s.name]; self != nil {
		for name, p := range s.peers {
			switch silence := self.lastSeen.Sub(p.lastSeen); {
			case silence > forgetAfter && p.failed:
				delete(s.peers, name)
				forgotten = append(forgotten, name)
			case silence > peerTimeout && !p.failed:
				p.failed = true
				failed = append(failed, name)
			}
		}
	}
	s.mu.Unlock()
	for _, name := range failed {
		s.handler.NodeLeft(name)
	}
	for _, name := range forgotten {
		for _, sub := range s.subscribers {
			sub.forgetPeer(name)
		}
	}
}

// restartTimeouts gives all peers the full peerTimeout to be received again after an
// interruption of this node's connection.
func (s *session) restartTimeouts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.peers {
		s.peers[name].lastSeen = time.Now()
	}
}
