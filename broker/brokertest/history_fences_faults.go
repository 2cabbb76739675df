package brokertest

import (
	"fmt"
	"maps"
	"math"
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
	errs := make([]error, 2)
	wg.Go(func() { errs[0] = replaced.publishAll(math.MaxInt, true) })
	wg.Go(func() {
		time.Sleep(fault.Duration / 3)
		errs[1] = newer.publishAll(packetsInFault/2, false)
	})
	time.Sleep(fault.Duration)
	end()
	wg.Wait()
	page, err := nodes[2].history(topic)
	if err = errors.Join(append(errs, err)...); err != nil {
		return err
	}
	maps.Copy(replaced.stored, newer.stored)
	return errors.Join(
		checkOrder(page.Publications, replaced.stored),
		nodes[2].readsClosed(topic, true),
		nodes[2].refuses(broker.Append{Topic: topic, Fence: newer.fence}, errors.FailedPrecondition),
	)
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

// publishAll appends a number of publications, of which the last one closes the topic. The topic must
// refuse one of them if isReplaced is true, otherwise none.
func (p *producer) publishAll(number int, isReplaced bool) error {
	for i := 0; i < number && time.Now().Before(p.until); i++ {
		err := p.publish(i == number-1)
		code := errors.CodeOf(err)
		switch {
		case isReplaced && (code == errors.Aborted || code == errors.FailedPrecondition):
			return nil
		case err != nil:
			return fmt.Errorf("publication %d with fence %d: %w", i, p.fence, err)
		}
		time.Sleep(p.pause)
	}
	if isReplaced {
		return errors.New("no publication of the replaced producer was refused")
	}
	return nil
}
