package brokertest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A Fault disturbs one node, for example its connection to a server.
type Fault struct {
	Name string

	// Begin starts the fault and returns the function that ends it. The fault concerns only
	// this node, or the whole cluster.
	Begin func(broker.Node) (end func())

	// Duration is how long it lasts.
	Duration time.Duration
}

// The nodes that a fault may disturb.
const (
	faultyPublisher = iota
	faultySubscriber
	nodesInFault
)

// faultTopics are the topics of which packets may be lost.
const faultTopics = 3

// packetsInFault are published by each publisher on each topic during a fault.
const packetsInFault = 60

// lossIsReported disturbs one node after the other while two nodes publish.
func lossIsReported(c Cluster) error {
	return disturbEach(c.Faults, c.disturb)
}

// disturbEach calls disturb without a fault, and with each fault, for each node of a case.
func disturbEach(faults []Fault, disturb func(fault Fault, at int) error) error {
	for _, fault := range append([]Fault{{Name: "no fault", Begin: func(broker.Node) func() { return func() {} }}}, faults...) {
		for at := range nodesInFault {
			if err := disturb(fault, at); err != nil {
				return fmt.Errorf("%s of node %d: %w", fault.Name, at, err)
			}
		}
	}
	return nil
}

// A traffic is what two nodes publish and a third one receives.
type traffic struct {
	publishers []*node
	receiver   *node
	published  map[stream][]time.Time // when each number was published
}

// A stream is what one node publishes on one topic: the numbers from 0.
type stream struct {
	topic     string
	publisher int
}

func (c Cluster) disturb(fault Fault, at int) error {
	t := &traffic{publishers: []*node{c.connect(), c.connect()}, receiver: c.connect(), published: map[stream][]time.Time{}}
	all := []*node{t.publishers[0], t.receiver, t.publishers[1]}
	defer closeAll(all...)
	t.receiver.locked(func() { t.receiver.tolerant = true })
	for topic := range faultTopics {
		if err := t.receiver.subscribe(topicName(topic)); err != nil {
			return err
		}
	}
	t.publish(packetsInFault, 0)
	if err := t.receiver.await("packets before the fault", func() bool { return t.checkLocked() == nil }); err != nil {
		return err
	}
	end := fault.Begin(all[at].Node)
	t.publish(packetsInFault, fault.Duration)
	end()
	if err := t.awaitDelivery(); err != nil {
		return err
	}
	time.Sleep(c.QuietPeriod)
	if err := t.receiver.await("check", func() bool { return t.checkLocked() == nil }); err != nil {
		t.receiver.locked(func() { err = errors.Join(err, t.checkLocked()) })
		return err
	}
	if at != faultyPublisher {
		return nil
	}
	return t.crash(c)
}

func topicName(n int) string { return "topic " + strconv.Itoa(n) }

// publish publishes packets on each topic within d. Errors are ignored: a packet that is not
// accepted must be reported as well.
func (t *traffic) publish(packets int, d time.Duration) {
	for range packets {
		for publisher, n := range t.publishers {
			for topic := range faultTopics {
				s := stream{topicName(topic), publisher}
				_ = n.Publish(s.topic, fmt.Appendf(nil, "%d %d", publisher, len(t.published[s])))
				t.published[s] = append(t.published[s], time.Now())
			}
		}
		time.Sleep(d / time.Duration(packets))
	}
}

// awaitDelivery publishes until a packet of each stream arrives that was published after the fault.
func (t *traffic) awaitDelivery() error {
	before := map[stream]int{}
	for s, published := range t.published {
		before[s] = len(published)
	}
	return t.receiver.await("delivery after the fault", func() bool {
		t.receiver.mu.Unlock()
		t.publish(1, t.receiver.cluster.Timeout/200)
		t.receiver.mu.Lock()
		delivered := t.deliveredLocked()
		for s, n := range before {
			if numbers := delivered[s]; len(numbers) == 0 || numbers[len(numbers)-1] < n {
				return false
			}
		}
		return true
	})
}

// deliveredLocked returns the numbers that the receiver has received.
func (t *traffic) deliveredLocked() map[stream][]int {
	all := map[stream][]int{}
	for _, d := range t.receiver.deliveries {
		publisher, number, _ := strings.Cut(d.packet, " ")
		s := stream{d.topic, int(publisher[0] - '0')}
		n, _ := strconv.Atoi(number)
		all[s] = append(all[s], n)
	}
	return all
}

// checkLocked returns an error unless each number was delivered once and in order, or its loss was
// reported after it was published.
func (t *traffic) checkLocked() error {
	delivered := t.deliveredLocked()
	for s, published := range t.published {
		next := 0
		for _, number := range append(delivered[s], len(published)) {
			if number < next {
				return fmt.Errorf("packet %d of publisher %d on %q was delivered twice or after a later one", number, s.publisher, s.topic)
			}
			for missing := next; missing < number; missing++ {
				if !t.receiver.reported[s.topic].After(published[missing]) {
					return fmt.Errorf("packet %d of %d of publisher %d on %q was neither delivered nor reported as lost after it was published",
						missing, len(published), s.publisher, s.topic)
				}
			}
			next = number + 1
		}
	}
	return nil
}

// crash ends the disturbed publisher, and connects another node in its place.
func (t *traffic) crash(c Cluster) error {
	var name string
	before := 0
	t.receiver.locked(func() {
		for _, d := range t.receiver.deliveries {
			if d.packet[0] == '0' {
				name = d.from
			}
		}
		before = len(t.receiver.left)
	})
	c.kill(t.publishers[0])
	t.publishers[0] = c.connect()
	defer t.publishers[0].close()
	err := t.receiver.await("NodeLeft of a node that crashed after a fault", func() bool { return len(t.receiver.left) > before })
	if err != nil {
		return err
	}
	if err := t.awaitDelivery(); err != nil {
		return fmt.Errorf("another node in its place: %w", err)
	}
	time.Sleep(c.QuietPeriod)
	t.receiver.locked(func() {
		left := t.receiver.left[before:]
		if len(left) != 1 || left[0] != name {
			err = fmt.Errorf("NodeLeft was called for %q, want [%q]", left, name)
		}
	})
	return err
}

func closeSendsEverything(c Cluster) error {
	a, b := c.connect(), c.connect()
	defer closeAll(b)
	if err := b.subscribe("news"); err != nil {
		return err
	}
	var want []string
	for n := range 1000 {
		want = append(want, strconv.Itoa(n))
		a.publish("news", []byte(want[n]))
	}
	a.close()
	var err error
	a.locked(func() { err = a.lost })
	return errors.Join(err, b.receives("news", want...))
}

func nothingFollowsClose(c Cluster) error {
	a, b := c.connect(), c.connect()
	defer closeAll(a)
	if err := b.subscribe("news"); err != nil {
		return err
	}
	for range 1000 {
		a.publish("news", []byte("packet"))
	}
	if err := b.await("a packet", func() bool { return len(b.deliveries) > 0 }); err != nil {
		return err
	}
	b.Subscribe("other")
	b.close()
	before, after := 0, 0
	b.locked(func() { before = b.calls })
	a.publish("news", []byte("after Close"))
	time.Sleep(c.QuietPeriod)
	b.locked(func() { after = b.calls })
	if after != before {
		return fmt.Errorf("%d functions of the handler were called after Close", after-before)
	}
	return nil
}
