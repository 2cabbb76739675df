package presence_test

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/cluster/presence"
)

const (
	tickInterval      = 50 * time.Millisecond
	heartbeatInterval = time.Second
	peerTimeout       = 4 * time.Second
)

// A simulation is a cluster in virtual time. Everything follows from its seed.
type simulation struct {
	t     testing.TB
	rand  *rand.Rand
	now   time.Time
	queue []simEvent // in the order of their times
	seq   int

	nodes  map[string]*simNode // the running ones, by name
	order  []*simNode          // the running ones, in the order of their start
	names  int
	topics []string

	configure func(*presence.Node) // sets limits
	chunk     int

	// Faults of the network.
	loss, duplication float64
	delay             time.Duration          // the longest
	paths             int                    // packets of a node on different paths overtake each other
	cut               map[[2]string]bool     // from, to
	arrivals          map[link]time.Time     // of the last packet
	count             map[byte]*packetCount  // by kind; heartbeats have kind 0
	history           func(string, ...any)   // logs what happens, if set
	shadow            map[string]eventShadow // by the node that reports
}

type simEvent struct {
	at  time.Time
	seq int
	run func()
}

// A link is one path of a node to another one.
type link struct {
	from, to string
	path     uint32
}

type packetCount struct{ packets, bytes, copies, copyBytes int }

// An eventShadow is the presence that follows from the events of one node.
type eventShadow map[string]presence.Member // by topic, node and ID

// A simNode is a node with the layer below: heartbeats, subscriptions, and peers that fail after
// peerTimeout of silence while the node's own heartbeats return.
type simNode struct {
	*simulation
	name    string
	node    *presence.Node
	members map[string]map[string]string // the truth: topic, ID, data
	tracked map[string]bool
	ids     int

	lastSeen map[string]time.Time // heartbeats, also the node's own
	failed   map[string]bool
	paused   bool
	buffered []func() // what arrives while the node is paused

	mute       bool // its publishes and sends fail, its heartbeats too
	muteTopics bool // its publishes to topics fail
	deaf       bool // nothing arrives
}

func newSimulation(t testing.TB, seed uint64, topics int) *simulation {
	s := &simulation{
		t:        t,
		rand:     rand.New(rand.NewPCG(seed, 1)),
		now:      time.Unix(1e9, 0),
		nodes:    map[string]*simNode{},
		delay:    5 * time.Millisecond,
		paths:    1,
		cut:      map[[2]string]bool{},
		arrivals: map[link]time.Time{},
		count:    map[byte]*packetCount{},
		shadow:   map[string]eventShadow{},
	}
	for i := range topics {
		s.topics = append(s.topics, fmt.Sprintf("room/%d", i))
	}
	return s
}

func (s *simulation) after(d time.Duration, run func()) {
	s.seq++
	e := simEvent{s.now.Add(d), s.seq, run}
	i, _ := slices.BinarySearchFunc(s.queue, e, func(a, b simEvent) int { return cmp.Or(a.at.Compare(b.at), a.seq-b.seq) })
	s.queue = slices.Insert(s.queue, i, e)
}

func (s *simulation) run(d time.Duration) {
	end := s.now.Add(d)
	for len(s.queue) > 0 && !s.queue[0].at.After(end) {
		e := s.queue[0]
		s.queue = s.queue[1:]
		s.now = e.at
		e.run()
	}
	s.now = end
}

func (s *simulation) log(format string, args ...any) {
	if s.history != nil {
		s.history("%v "+format, append([]any{s.now.Sub(time.Unix(1e9, 0))}, args...)...)
	}
}

func (s *simulation) start() *simNode {
	s.names++
	n := &simNode{
		simulation: s,
		name:       fmt.Sprintf("node%03d", s.names),
		members:    map[string]map[string]string{},
		tracked:    map[string]bool{},
		lastSeen:   map[string]time.Time{},
		failed:     map[string]bool{},
	}
	n.node = presence.New(presence.Config{
		Name:        n.name,
		Incarnation: s.rand.Uint64(),
		Rand:        rand.New(rand.NewPCG(s.rand.Uint64(), 2)),
		Output:      n,
		ChunkBytes:  s.chunk,
	})
	if s.configure != nil {
		s.configure(n.node)
	}
	s.shadow[n.name] = eventShadow{}
	s.nodes[n.name] = n
	s.order = append(s.order, n)
	s.after(time.Duration(s.rand.Int64N(int64(heartbeatInterval))), n.heartbeat)
	s.after(tickInterval, n.tick)
	return n
}

// stop ends a node without a leave message.
func (s *simulation) stop(n *simNode) {
	delete(s.nodes, n.name)
	s.order = slices.DeleteFunc(s.order, func(m *simNode) bool { return m == n })
}

func (n *simNode) running() bool { return n.nodes[n.name] == n }

func (n *simNode) heartbeat() {
	if !n.running() {
		return
	}
	n.after(heartbeatInterval, n.heartbeat)
	if n.paused {
		return
	}
	payload := n.node.Heartbeat(n.now)
	n.counted(0, payload, len(n.order))
	for _, to := range n.order {
		n.transmit(to, "heartbeat", func() { to.peerHeartbeat(n.name, payload) })
	}
}

func (n *simNode) peerHeartbeat(from string, payload []byte) {
	if from == n.name && n.now.Sub(n.lastSeen[n.name]) > peerTimeout {
		n.connected()
	}
	n.lastSeen[from] = n.now
	delete(n.failed, from)
	n.node.PeerHeartbeat(from, slices.Clone(payload), n.now)
}

// connected gives all peers three heartbeats to return after an interruption. With the first of the
// node's own heartbeats, that is 4 s: a peer that has failed meanwhile is removed within 5 s.
func (n *simNode) connected() {
	for name := range n.lastSeen {
		n.lastSeen[name] = n.now.Add(3*heartbeatInterval - peerTimeout)
	}
	n.lastSeen[n.name] = n.now
}

func (n *simNode) tick() {
	if !n.running() {
		return
	}
	n.after(tickInterval, n.tick)
	if n.paused {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(n.lastSeen)) {
		if n.now.Sub(n.lastSeen[n.name]) < 2*heartbeatInterval && n.now.Sub(n.lastSeen[name]) > peerTimeout && !n.failed[name] {
			n.failed[name] = true
			n.log("%s: %s failed", n.name, name)
			n.node.PeerFailed(name, n.now)
		}
	}
	n.node.Tick(n.now)
}

func (n *simNode) pause(d time.Duration) {
	n.paused = true
	n.after(d, func() {
		if !n.running() || !n.paused {
			return
		}
		n.paused = false
		n.connected()
		buffered := n.buffered
		n.buffered = nil
		for _, deliver := range buffered {
			deliver()
		}
	})
}

// transmit delivers a packet. Packets from one node on one path stay in order.
func (n *simNode) transmit(to *simNode, path string, deliver func()) {
	if n.mute || n.cut[[2]string{n.name, to.name}] {
		return
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(path))
	key := link{from: n.name, to: to.name, path: h.Sum32() % uint32(n.paths)}
	copies := 1
	if n.rand.Float64() < n.loss {
		return
	}
	if n.rand.Float64() < n.duplication {
		copies = 2
	}
	at := n.now.Add(time.Duration(n.rand.Int64N(int64(n.delay)) + 1))
	if last := n.arrivals[key]; at.Before(last) {
		at = last
	}
	n.arrivals[key] = at
	for range copies {
		n.after(at.Sub(n.now), func() {
			switch {
			case !to.running() || to.deaf:
			case to.paused:
				if len(to.buffered) < 200 {
					to.buffered = append(to.buffered, deliver)
				}
			default:
				deliver()
			}
		})
		at = at.Add(time.Duration(n.rand.Int64N(int64(n.delay)) + 1))
	}
}

func (n *simNode) counted(kind byte, packet []byte, copies int) {
	c := n.count[kind]
	if c == nil {
		c = &packetCount{}
		n.count[kind] = c
	}
	c.packets++
	c.bytes += len(packet)
	c.copies += copies
	c.copyBytes += copies * len(packet)
}

func (n *simNode) receive(from string, packet []byte) {
	packet = slices.Clone(packet)
	n.node.Receive(from, packet, n.now)
	clear(packet) // it may be reused
}

// Publish, Send, Broadcast and Changed implement presence.Output.
func (n *simNode) Publish(topic string, packet []byte) {
	copies := 0
	for _, to := range n.order {
		if to == n || !to.tracked[topic] {
			continue
		}
		copies++
		if !n.muteTopics {
			n.transmit(to, topic, func() {
				if to.tracked[topic] {
					to.receive(n.name, packet)
				}
			})
		}
	}
	n.counted(packet[0], packet, copies)
}

func (n *simNode) Send(node string, packet []byte) {
	n.counted(packet[0], packet, 1)
	if to := n.nodes[node]; to != nil {
		n.transmit(to, "unicast", func() { to.receive(n.name, packet) })
	}
}

func (n *simNode) Broadcast(packet []byte) {
	n.counted(packet[0], packet, len(n.order)-1)
	for _, to := range n.order {
		n.transmit(to, "heartbeat", func() { to.receive(n.name, packet) })
	}
}

func (n *simNode) Changed(e presence.Event) {
	key := e.Topic + "\x00" + e.Member.Node + "\x00" + e.Member.ID
	old, present := n.shadow[n.name][key]
	require.NotEqual(n.t, e.Joined, present, "%s: joins and leaves must alternate: %+v", n.name, e)
	if e.Joined {
		n.shadow[n.name][key] = e.Member
		return
	}
	require.Equal(n.t, old, e.Member, "%s: a leave must carry the data of the join", n.name)
	delete(n.shadow[n.name], key)
}

func (n *simNode) track(topic string) {
	n.tracked[topic] = true
	n.node.Track(topic, n.now)
}

func (n *simNode) untrack(topic string) {
	delete(n.tracked, topic)
	n.node.Untrack(topic)
}

func (n *simNode) join(topic, id, data string) {
	if n.members[topic] == nil {
		n.members[topic] = map[string]string{}
	}
	n.members[topic][id] = data
	n.node.Join(topic, id, data)
}

func (n *simNode) leave(topic, id string) {
	delete(n.members[topic], id)
	n.node.Leave(topic, id)
}

// difference describes the first difference between what a node reports and what is true.
func (s *simulation) difference() string {
	for _, n := range s.order {
		shadow := eventShadow{}
		for _, topic := range s.topics {
			got := map[presence.Member]bool{}
			for _, m := range n.node.Members(topic) {
				got[m] = true
				shadow[topic+"\x00"+m.Node+"\x00"+m.ID] = m
			}
			want := map[presence.Member]bool{}
			for _, other := range s.order {
				if other == n || !n.tracked[topic] {
					continue
				}
				for id, data := range other.members[topic] {
					want[presence.Member{Node: other.name, ID: id, Data: data}] = true
				}
			}
			for m := range want {
				if !got[m] {
					return fmt.Sprintf("%s misses %+v in %s", n.name, m, topic)
				}
			}
			for m := range got {
				if !want[m] {
					return fmt.Sprintf("%s has a ghost %+v in %s", n.name, m, topic)
				}
			}
		}
		if !maps.Equal(shadow, s.shadow[n.name]) {
			return fmt.Sprintf("%s: its events do not add up to its members", n.name)
		}
	}
	return ""
}

// sent returns the packets and bytes since the last call of resetCount, without heartbeats.
func (s *simulation) sent() (total packetCount) {
	for kind, c := range s.count {
		if kind != 0 {
			total.packets += c.packets
			total.bytes += c.bytes
			total.copies += c.copies
			total.copyBytes += c.copyBytes
		}
	}
	return total
}

func (s *simulation) resetCount() { clear(s.count) }
