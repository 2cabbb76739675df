package brokertest

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// A historyNode records what its node publishes.
type historyNode struct {
	broker.HistoryNode
	recorder
	cluster HistoryCluster

	published  map[string][]broker.Publication // by topic
	following  map[string]int                  // calls of Following, by topic
	followedAt map[string]time.Time            // the last one
	calls      int                             // of the history handler
}

// keepAll is a retention that keeps everything that a case publishes.
func keepAll() broker.Retention { return broker.Retention{Messages: 10000, Age: time.Hour} }

// topic returns the name of a topic that no other run uses.
func (c HistoryCluster) topic() string { return "news " + rand.Text() }

func (c HistoryCluster) connect() *historyNode {
	n := &historyNode{
		recorder: recorder{maxWait: c.Timeout}, cluster: c, published: map[string][]broker.Publication{}, following: map[string]int{}, followedAt: map[string]time.Time{},
	}
	n.HistoryNode = c.Connect(broker.Callbacks{
		Receive:         func(string, string, []byte) {},
		Subscribed:      func(string) {},
		MessagesLost:    func(string, int) {},
		PresenceChanged: func(string, broker.Member, bool) {},
		NodeLeft:        func(string) {},
	}, broker.HistoryCallbacks{
		Published: func(topic string, p broker.Publication) {
			p.Packet = bytes.Clone(p.Packet)
			n.locked(func() { n.calls++; n.published[topic] = append(n.published[topic], p) })
		},
		Following: func(topic string) {
			n.locked(func() { n.calls++; n.following[topic]++; n.followedAt[topic] = time.Now() })
		},
	})
	return n
}

// connectNodes returns nodes and a function that closes them.
func (c HistoryCluster) connectNodes(number int) (nodes []*historyNode, closeAll func()) {
	for range number {
		nodes = append(nodes, c.connect())
	}
	return nodes, func() {
		for _, n := range nodes {
			n.close()
		}
	}
}

func (n *historyNode) close() {
	ctx, cancel := n.timeout()
	defer cancel()
	_ = n.Close(ctx) // a case that expects no error calls Close
}

// follow returns once the broker has reported that the node follows the topic.
func (n *historyNode) follow(topic string) error {
	before := 0
	n.locked(func() { before = n.following[topic] })
	n.Follow(topic)
	return n.await("Following of "+strconv.Quote(topic), func() bool { return n.following[topic] > before })
}

// store appends a publication that must be stored or be a duplicate.
func (n *historyNode) store(a broker.Append) (broker.Appended, error) {
	ctx, cancel := n.timeout()
	defer cancel()
	if a.Retention == (broker.Retention{}) {
		a.Retention = keepAll()
	}
	result, err := n.Append(ctx, a)
	if err != nil {
		return result, fmt.Errorf("appending to %.40q: %w", a.Topic, err)
	}
	return result, nil
}

// storeAll appends packets, and checks that their offsets continue from the last one.
func (n *historyNode) storeAll(topic string, r broker.Retention, packets ...string) error {
	last, err := n.position(topic)
	if err != nil {
		return err
	}
	for _, packet := range packets {
		last.Offset++
		result, err := n.store(broker.Append{Topic: topic, Retention: r, Packet: []byte(packet)})
		if err != nil {
			return err
		}
		if want := (broker.Appended{Position: last}); result != want {
			return fmt.Errorf("an Append returned %+v, want %+v", result, want)
		}
	}
	return nil
}

// read returns a page. If q has no retention, all publications are requested.
func (n *historyNode) read(q broker.Query) (broker.Page, error) {
	ctx, cancel := n.timeout()
	defer cancel()
	if q.Retention == (broker.Retention{}) {
		q.Retention = keepAll()
	}
	page, err := n.Read(ctx, q)
	if err != nil {
		return page, fmt.Errorf("reading %.40q: %w", q.Topic, err)
	}
	return page, nil
}

func (n *historyNode) history(topic string) (broker.Page, error) {
	return n.read(broker.Query{Topic: topic, Limit: 100000})
}

func (n *historyNode) position(topic string) (broker.Position, error) {
	page, err := n.read(broker.Query{Topic: topic})
	return page.Position, err
}

// readState returns the whole state in one part.
func (n *historyNode) readState(topic string, r broker.Retention) (broker.StatePart, error) {
	state, err := n.readStatePart(broker.StateQuery{Topic: topic, Retention: r, MaxBytes: 1 << 30})
	if err == nil && state.Next != "" {
		return state, fmt.Errorf("the state of %.40q has another part though the first one is shorter than MaxBytes", topic)
	}
	return state, err
}

func (n *historyNode) readStatePart(q broker.StateQuery) (broker.StatePart, error) {
	ctx, cancel := n.timeout()
	defer cancel()
	part, err := n.ReadState(ctx, q)
	if err != nil {
		return part, fmt.Errorf("reading the state of %.40q: %w", q.Topic, err)
	}
	return part, nil
}

// receives checks that exactly these publications are delivered on a topic, in this order.
func (n *historyNode) receives(topic string, want []broker.Publication) error {
	err := n.await(fmt.Sprintf("publication %d on %.40q", len(want), topic), func() bool { return len(n.published[topic]) >= len(want) })
	if err != nil {
		return err
	}
	time.Sleep(n.cluster.QuietPeriod)
	n.mu.Lock()
	defer n.mu.Unlock()
	return comparePublications("delivered", n.published[topic], want)
}

// has checks that exactly these packets are stored, from offset 1.
func (n *historyNode) has(topic string, packets ...string) error {
	page, err := n.history(topic)
	if err != nil {
		return err
	}
	if len(page.Publications) != len(packets) {
		return fmt.Errorf("%d publications are stored, want %d", len(page.Publications), len(packets))
	}
	for i, p := range page.Publications {
		if want := uint64(i + 1); p.Position.Offset != want || string(p.Packet) != packets[i] {
			return fmt.Errorf("%.40q is stored at %d, want %.40q at %d", p.Packet, p.Position.Offset, packets[i], want)
		}
	}
	return nil
}

func comparePublications(verb string, got, want []broker.Publication) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d publications were %s, want %d", len(got), verb, len(want))
	}
	for i := range want {
		if !samePublication(got[i], want[i]) {
			return fmt.Errorf("publication %d that was %s is %s, want %s", i, verb, describe(got[i]), describe(want[i]))
		}
	}
	return nil
}

func samePublication(a, b broker.Publication) bool {
	return a.Position == b.Position && a.At.Equal(b.At) && bytes.Equal(a.Packet, b.Packet) && a.StateKey == b.StateKey && a.Removed == b.Removed
}

func describe(p broker.Publication) string {
	return fmt.Sprintf("%.40q at %s/%d, %v, key %.40q, removed: %t", p.Packet, p.Position.Epoch, p.Position.Offset, p.At, p.StateKey, p.Removed)
}

func checkAdjacent(publications []broker.Publication) error {
	for i := 1; i < len(publications); i++ {
		a, b := publications[i-1], publications[i]
		if b.Position.Offset != a.Position.Offset+1 {
			return fmt.Errorf("offset %d follows offset %d", b.Position.Offset, a.Position.Offset)
		}
	}
	return nil
}
