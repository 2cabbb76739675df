package presence

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/penstock-go/penstock/internal/random"
)

// Config contains the options of a [Node]. Name, Incarnation, Rand and Output must be set.
type Config struct {
	Name        string // of this node, unique in the cluster
	Incarnation uint64 // random; another one after each restart of the node
	Rand        *random.Rand
	Output      Output

	// ChunkBytes bounds packets, except that a packet contains at least one member, topic or
	// change. If 0, the bound is 64 KiB.
	ChunkBytes int
}

// Output contains what a [Node] sends and reports. Its methods are called during calls of the
// node's methods, must not call the node, and own the packets. They may lose packets.
type Output interface {
	// Publish sends a packet to the nodes that subscribe to topic.
	Publish(topic string, packet []byte)

	// Send sends a packet to one node.
	Send(node string, packet []byte)

	// Broadcast sends a packet to all nodes.
	Broadcast(packet []byte)

	// Changed reports that a member of another node has joined or left a tracked topic. Joins
	// and leaves of a member alternate.
	Changed(Event)
}

// A Member is present in a topic. IDs are unique on a node. Data is opaque.
type Member struct {
	Node string
	ID   string
	Data string
}

// An Event reports that a member has joined a topic or left it.
type Event struct {
	Topic  string
	Member Member
	Joined bool // false if the member has left
}

const (
	jitter       = 200 * time.Millisecond  // requests are collected for up to this long
	retryMin     = 500 * time.Millisecond  // after the first request without an answer
	retryMax     = 2 * time.Second         // between requests
	queryTimeout = 1500 * time.Millisecond // for the answers in heartbeats, one per second
	forgetAfter  = time.Minute             // since a peer has failed
)

// maxConfirms bounds the queried topics that wait for a heartbeat.
const maxConfirms = 4096

// A Node is this process's view of the members in the topics of the cluster. Its methods must not
// be called concurrently. The times that are passed to it must not decrease.
type Node struct {
	cfg     Config
	own     *owner
	tracked map[string]struct{}
	peers   []*peer // sorted by name

	query   map[string]struct{} // topics to be queried at queryAt
	queryAt time.Time

	queriedAt time.Time // of the last query

	repairs int // mismatches between members and checksum; more than 0 is a defect
}

// New returns a node without members, topics and peers.
func New(cfg Config) *Node {
	if cfg.ChunkBytes == 0 {
		cfg.ChunkBytes = 64 << 10
	}
	return &Node{
		cfg:     cfg,
		own:     newOwner(cfg.Incarnation),
		tracked: map[string]struct{}{},
		query:   map[string]struct{}{},
	}
}

// Join makes a member of this node present in a topic. If the ID is present with other data, the
// other nodes see the member leave and join.
func (n *Node) Join(topic, id, data string) {
	if t := n.own.topics[topic]; t != nil {
		if old, ok := t.data[id]; ok && old == data {
			return
		}
	}
	n.cfg.Output.Publish(topic, n.own.apply(change{topic: topic, id: id, data: data, joined: true}))
}

// Leave removes a member of this node. It does nothing if the member is not present.
func (n *Node) Leave(topic, id string) {
	t := n.own.topics[topic]
	if t == nil {
		return
	}
	if _, ok := t.data[id]; ok {
		n.cfg.Output.Publish(topic, n.own.apply(change{topic: topic, id: id}))
	}
}

// Track begins to follow the members of a topic on other nodes. The node must already receive what
// is published on the topic, or joins are seen up to two seconds late.
func (n *Node) Track(topic string, now time.Time) {
	if _, ok := n.tracked[topic]; ok {
		return
	}
	n.tracked[topic] = struct{}{}
	if len(n.peers) == 0 {
		return
	}
	if len(n.query) == 0 { // at once, unless many topics are tracked in a short time
		n.queryAt = now
		if next := n.queriedAt.Add(n.jitter()); next.After(now) {
			n.queryAt = next
		}
	}
	n.query[topic] = struct{}{}
	for _, p := range n.peers {
		p.expect(topic, n.queryAt.Add(queryTimeout+n.jitter()))
	}
}

// Untrack ends Track. The topic's members on other nodes leave.
func (n *Node) Untrack(topic string) {
	delete(n.tracked, topic)
	delete(n.query, topic)
	for _, p := range n.peers {
		n.drop(p, topic)
	}
}

// Heartbeat returns what the next heartbeat of this node must contain. It must be called once per
// second.
func (n *Node) Heartbeat(now time.Time) []byte { return n.own.heartbeat(now, len(n.peers)) }

// Tick sends requests that are due and forgets failed peers. It should be called about 20 times
// per second.
func (n *Node) Tick(now time.Time) {
	n.peers = slices.DeleteFunc(n.peers, func(p *peer) bool {
		return p.gone && now.Sub(p.goneAt) >= forgetAfter
	})
	if len(n.query) > 0 && !now.Before(n.queryAt) {
		n.queriedAt = now
		n.sendQuery()
	}
	for _, p := range n.peers {
		if !p.gone && !p.askAt.IsZero() && !now.Before(p.askAt) {
			n.ask(p, now)
		}
	}
}

// Receive handles a packet that another node has published, broadcast or sent. It ignores
// malformed packets. The packet may be reused afterwards.
func (n *Node) Receive(from string, packet []byte, now time.Time) {
	if from == n.cfg.Name || len(packet) == 0 {
		return
	}
	r := &reader{rest: packet[1:]}
	switch packet[0] {
	case kindQuery:
		n.receiveQuery(from, r)
		return
	case kindAsk:
		n.receiveAsk(from, r)
		return
	}
	p := n.peer(from)
	if p == nil || p.left || r.uint64() != p.incarnation {
		return // a heartbeat introduces the peer
	}
	switch packet[0] {
	case kindDigest:
		if d, ok := r.digest(); ok && n.receiveDigest(p, d) {
			p.tidyAll()
			n.schedule(p, now) // for what the digest shows
		}
	case kindChange:
		n.receiveChange(p, r)
	case kindState:
		n.receiveState(p, r, now)
	}
	n.settle(p, now)
}

// PeerHeartbeat handles the payload of another node's heartbeat. It ends PeerFailed.
func (n *Node) PeerHeartbeat(node string, payload []byte, now time.Time) {
	r := &reader{rest: payload}
	if node == n.cfg.Name || r.byte() != kindDigest {
		return
	}
	incarnation := r.uint64()
	d, ok := r.digest()
	if !ok {
		return
	}
	p := n.peer(node)
	if p == nil {
		p = n.addPeer(node)
		p.reset(incarnation)
	}
	if p.incarnation != incarnation {
		n.hide(p)
		p.reset(incarnation)
	}
	if p.left {
		return // it was sent before the peer left, on another path
	}
	p.gone = false
	n.receiveDigest(p, d)
	n.settle(p, now)
}

// PeerFailed reports that nothing was received from a node for some time. Its members leave. If
// it returns within a minute, what is known about them is used again.
func (n *Node) PeerFailed(node string, now time.Time) {
	p := n.peer(node)
	if p == nil || p.gone {
		return
	}
	n.hide(p)
	p.gone, p.goneAt = true, now
	p.askAt, p.attempts, p.assembly = time.Time{}, 0, assembly{}
}

// PeerLeft reports that a node has left the cluster. Its members leave.
func (n *Node) PeerLeft(node string, now time.Time) {
	p := n.peer(node)
	if p == nil {
		return
	}
	n.hide(p)
	p.reset(p.incarnation)
	p.left, p.gone, p.goneAt = true, true, now
}

func (n *Node) peer(name string) *peer {
	i, ok := n.findPeer(name)
	if !ok {
		return nil
	}
	return n.peers[i]
}

func (n *Node) findPeer(name string) (int, bool) {
	return slices.BinarySearchFunc(n.peers, name, func(p *peer, name string) int { return cmp.Compare(p.name, name) })
}

func (n *Node) addPeer(name string) *peer {
	i, _ := n.findPeer(name)
	p := &peer{name: name}
	n.peers = slices.Insert(n.peers, i, p)
	return p
}

func (n *Node) jitter() time.Duration { return time.Duration(n.cfg.Rand.Int64N(int64(jitter))) }

// sendQuery broadcasts the topics to be queried.
func (n *Node) sendQuery() {
	packet := []byte{kindQuery}
	for _, topic := range slices.Sorted(maps.Keys(n.query)) {
		if len(packet) > 1 && len(packet)+len(topic)+binary.MaxVarintLen64 > n.cfg.ChunkBytes {
			n.cfg.Output.Broadcast(packet)
			packet = []byte{kindQuery}
		}
		packet = appendString(packet, topic)
	}
	n.cfg.Output.Broadcast(packet)
	clear(n.query)
}

// receiveQuery sends the members of the topics in the query. A topic without members is confirmed
// by the next heartbeat, which needs no packet of its own, unless so many nodes read it that a packet
// to the asker alone is less.
func (n *Node) receiveQuery(from string, r *reader) {
	var topics []askTopic
	for len(r.rest) > 0 {
		topic := r.string()
		if r.bad {
			return
		}
		if t := n.own.topics[topic]; t != nil && t.count > 0 || len(n.peers) > n.own.limits.peers {
			topics = append(topics, askTopic{topic: topic, full: true})
		} else if len(n.own.confirm) < maxConfirms {
			n.own.confirm[topic] = struct{}{}
		}
	}
	slices.SortFunc(topics, func(a, b askTopic) int { return cmp.Compare(a.topic, b.topic) })
	topics = slices.Compact(topics)
	if len(topics) > 0 {
		n.send(from, n.own.answer(ask{topics: topics}, n.cfg.ChunkBytes))
	}
}

func (n *Node) receiveAsk(from string, r *reader) {
	if r.uint64() != n.own.incarnation {
		return
	}
	a, ok := r.ask()
	if !ok || a.known > n.own.version {
		return
	}
	for _, t := range a.topics {
		if !t.full && t.since > n.own.version {
			return
		}
	}
	n.send(from, n.own.answer(a, n.cfg.ChunkBytes))
}

func (n *Node) send(node string, packets [][]byte) {
	for _, packet := range packets {
		n.cfg.Output.Send(node, packet)
	}
}
