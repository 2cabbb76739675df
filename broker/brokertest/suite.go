// Package brokertest holds brokers to the contract of [broker.Broker]. Each sentence of
// it is a case, which says the rule in words when it fails.
package brokertest

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// A Case is one rule of the contract.
type Case struct {
	Name  string
	Rule  string
	Check func(Cluster) error // says how a broker broke the rule
}

// A Cluster makes the nodes of a case.
type Cluster struct {
	// Connect makes a node through a broker of its own, as another process would, or
	// through the one that all share.
	Connect func(broker.Handler) broker.Session

	// Kill ends a node as a crash does. If it is nil, Close ends it.
	Kill func(broker.Session)

	// Patience is how long to wait for what must happen, and Quiet how long for what
	// must not.
	Patience, Quiet time.Duration
}

// Run fails the test if the broker breaks the rule. Topics of different tests must not
// be the same where they share a server: they begin with the test's name.
func (c Case) Run(t *testing.T, cluster Cluster) {
	t.Helper()
	if err := c.Check(cluster); err != nil {
		t.Errorf("%v\nrule: %s", err, c.Rule)
	}
}

// Cases returns the contract.
func Cases() []Case {
	return []Case{
		{"a packet arrives", "A packet reaches all other nodes that subscribe to its topic, whole and once.", packetArrives},
		{"not at home", "A node does not receive its own packets.", notAtHome},
		{"other topics", "A node receives nothing of topics that it does not subscribe to, whatever their names hold.", otherTopics},
		{"unsubscribe", "After Unsubscribe, packets stop coming.", unsubscribe},
		{"subscribe again", "A topic may be left and subscribed to again.", subscribeAgain},
		{"subscribed is true", "Subscribed says that whatever is published from now on will come.", subscribedIsTrue},
		{"order", "What one node publishes on one topic comes in order, one at a time.", order},
		{"many publishers", "Nodes and goroutines may publish at the same time, and nothing is lost or doubled.", manyPublishers},
		{"large packets", "Packets may be empty, and as large as a message.", largePackets},
		{"goodbye", "Close tells the others that the node is down, under the name that its packets had.", goodbye},
		{"crash", "A node that dies is down, too.", crash},
		{"after close", "A closed link does nothing, and may be closed again.", afterClose},
	}
}

// A peer is a node of a case.
type peer struct {
	broker.Session
	cluster Cluster

	mu         sync.Mutex
	received   []received
	subscribed map[string]int
	down       []string
	wrong      error
}

type received struct{ topic, from, packet string }

func (c Cluster) join() *peer {
	p := &peer{cluster: c, subscribed: map[string]int{}}
	p.Session = c.Connect(broker.Handler{
		Receive:    p.receive,
		Subscribed: func(topic string) { p.locked(func() { p.subscribed[topic]++ }) },
		MessagesLost: func(topic string, packets int) {
			p.locked(func() { p.wrong = fmt.Errorf("%d packets of %q are missing", packets, topic) })
		},
		NodeLeft: func(from string) { p.locked(func() { p.down = append(p.down, from) }) },
	})
	return p
}

func (p *peer) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *peer) receive(topic, from string, packet []byte) {
	p.locked(func() {
		p.received = append(p.received, received{topic, from, string(packet)})
	})
}

// on subscribes and waits until that is in effect.
func (p *peer) on(topic string) error {
	before := 0
	p.locked(func() { before = p.subscribed[topic] })
	p.Subscribe(topic)
	return p.await("Subscribed of "+strconv.Quote(topic), func() bool { return p.subscribed[topic] > before })
}

func (p *peer) await(what string, is func() bool) error {
	for deadline := time.Now().Add(p.cluster.Patience); ; time.Sleep(time.Millisecond) {
		done, wrong := false, error(nil)
		p.locked(func() { done, wrong = is(), p.wrong })
		if wrong != nil {
			return wrong
		}
		if done {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s has not come within %v", what, p.cluster.Patience)
		}
	}
}

// got wants just these packets on a topic.
func (p *peer) got(topic string, want ...string) error {
	of := func() (got []string) {
		for _, r := range p.received {
			if r.topic == topic {
				got = append(got, r.packet)
			}
		}
		return got
	}
	if err := p.await(fmt.Sprintf("packet %d on %q", len(want), topic), func() bool { return len(of()) >= len(want) }); err != nil {
		return err
	}
	time.Sleep(p.cluster.Quiet)
	var got []string
	p.locked(func() { got = of() })
	if len(got) != len(want) {
		return fmt.Errorf("%d packets came on %q, want %d", len(got), topic, len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("packet %d on %q is %.40q, want %.40q", i, topic, got[i], want[i])
		}
	}
	return nil
}
