package brokertest

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// fencedOutcomeIsTrue disturbs one node after the other while a producer on one of them replaces that on
// the other, and closes the topic.
func fencedOutcomeIsTrue(c HistoryCluster) error {
	return disturbEach(c.Faults, c.disturbFences)
}

func (c HistoryCluster) disturbFences(fault Fault, at int) error {
	nodes, closeAll := c.connectNodes(3)
	defer closeAll()
	topic := c.topic()
	pause, until := max(fault.Duration/packetsInFault, time.Millisecond), time.Now().Add(fault.Duration+c.Timeout)
	replaced := &producer{node: nodes[0], topic: topic, fence: 1, pause: pause, until: until, stored: map[string]broker.Position{}}
	newer := &producer{node: nodes[1], topic: topic, fence: 2, pause: pause, until: until, stored: map[string]broker.Position{}}
	if err := errors.Join(replaced.publish(false), nodes[1].readsClosed(topic, false)); err != nil {
		return err
	}
	end := fault.Begin(nodes[at].HistoryNode)
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() { errs[0] = replaced.publishUntilRefused() })
	wg.Go(func() {
		time.Sleep(fault.Duration / 3)
		errs[1] = newer.publishAll(packetsInFault / 2)
	})
	time.Sleep(fault.Duration)
	end()
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	return checkProducers(nodes[2], replaced, newer)
}

// A producer publishes in a topic with a fence, and repeats what may not have been stored.
type producer struct {
	node   *historyNode
	topic  string
	fence  uint64
	pause  time.Duration
	until  time.Time // when it gives up
	calls  int
	stored map[string]broker.Position // by packet
}

// publish appends one publication until it is known whether it was stored.
func (p *producer) publish(last bool) error {
	packet := fmt.Sprintf("%d %d", p.fence, p.calls)
	p.calls++
	a := broker.Append{Topic: p.topic, Packet: []byte(packet), IdempotencyKey: packet, Fence: p.fence, Last: last}
	for {
		result, err := p.node.store(a)
		switch code := errors.CodeOf(err); {
		case err == nil:
			p.stored[packet] = result.Position
			return nil
		case code == errors.Aborted || code == errors.FailedPrecondition || time.Now().After(p.until):
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// publishAll appends a number of publications, of which the last one closes the topic.
func (p *producer) publishAll(number int) error {
	for i := range number {
		if err := p.publish(i == number-1); err != nil {
			return fmt.Errorf("publication %d of the newer producer: %w", i, err)
		}
		time.Sleep(p.pause)
	}
	return nil
}

// publishUntilRefused ends when the topic has a higher fence or is closed.
func (p *producer) publishUntilRefused() error {
	for {
		err := p.publish(false)
		switch code := errors.CodeOf(err); {
		case code == errors.Aborted || code == errors.FailedPrecondition:
			return nil
		case err == nil && time.Now().After(p.until):
			err = errors.New("no publication was refused")
		}
		if err != nil {
			return fmt.Errorf("publications of the replaced producer: %w", err)
		}
		time.Sleep(p.pause)
	}
}

// checkProducers checks that exactly what producers know to be stored is stored, in the order of their
// fences, and that the topic is closed.
func checkProducers(n *historyNode, replaced, newer *producer) error {
	page, err := n.history(newer.topic)
	if err != nil {
		return err
	}
	if got, want := len(page.Publications), len(replaced.stored)+len(newer.stored); got != want {
		return fmt.Errorf("%d publications are stored, want %d", got, want)
	}
	stored := map[string]broker.Position{}
	for _, p := range []*producer{replaced, newer} {
		maps.Copy(stored, p.stored)
	}
	err = errors.Join(checkFences(page.Publications, stored), n.readsClosed(newer.topic, true))
	return errors.Join(err, n.refuses(broker.Append{Topic: newer.topic, Fence: newer.fence}, errors.FailedPrecondition))
}
