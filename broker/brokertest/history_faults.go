package brokertest

import (
	"fmt"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// outcomeIsTrue disturbs a publisher, then a follower, while two nodes publish.
func outcomeIsTrue(c HistoryCluster) error {
	return disturbEach(c.Faults, c.disturb)
}

// A historyTraffic is what two nodes publish and a third one follows.
type historyTraffic struct {
	topic      string
	publishers []*historyNode
	follower   *historyNode
	attempts   [nodesInFault][]attempt // by publisher, which appends one after the other
}

// An attempt is a publication and the result of the last Append.
type attempt struct {
	append broker.Append
	begun  time.Time // the first Append
	result broker.Appended
	err    error
}

func (c HistoryCluster) disturb(fault Fault, at int) error {
	nodes, closeAll := c.connectNodes(3)
	defer closeAll()
	t := &historyTraffic{topic: c.topic(), publishers: []*historyNode{nodes[0], nodes[2]}, follower: nodes[1]}
	if err := t.follower.follow(t.topic); err != nil {
		return err
	}
	t.publish(10, 0)
	end := fault.Begin(nodes[at].HistoryNode)
	t.publish(packetsInFault, fault.Duration)
	end()
	if err := errors.Join(t.awaitReport(), t.repeat(), t.awaitDelivery()); err != nil {
		return err
	}
	time.Sleep(c.QuietPeriod)
	page, err := nodes[1].history(t.topic)
	if err != nil {
		return err
	}
	if err := t.checkStored(page); err != nil {
		return err
	}
	return t.checkDelivered(page)
}

// publish appends publications on both publishers, one of two with a key. If they take longer than d
// and d is not 0, for example because each waits for a stalled connection, it appends fewer.
func (t *historyTraffic) publish(number int, d time.Duration) {
	var wg sync.WaitGroup
	for i, n := range t.publishers {
		wg.Go(func() {
			begun := time.Now()
			for range number {
				if d > 0 && time.Since(begun) >= d {
					return
				}
				a := broker.Append{Topic: t.topic, Packet: fmt.Appendf(nil, "%d %d", i, len(t.attempts[i]))}
				if len(t.attempts[i])%2 == 0 {
					a.IdempotencyKey = string(a.Packet)
				}
				t.attempts[i] = append(t.attempts[i], n.attempt(a))
				time.Sleep(d / time.Duration(number))
			}
		})
	}
	wg.Wait()
}

func (n *historyNode) attempt(a broker.Append) attempt {
	begun := time.Now()
	result, err := n.store(a)
	return attempt{append: a, begun: begun, result: result, err: err}
}

// awaitReport waits until the follower has received what was stored last, or a call of Following. Nothing
// is published meanwhile, so no gap shows a loss.
func (t *historyTraffic) awaitReport() error {
	err := errors.New("no page")
	_ = t.follower.await("report", func() bool {
		t.follower.mu.Unlock()
		var page broker.Page
		if page, err = t.follower.history(t.topic); err == nil {
			err = t.checkDelivered(page)
		}
		t.follower.mu.Lock()
		return err == nil
	})
	return err
}

// repeat repeats each Append with a key that has failed.
func (t *historyTraffic) repeat() error {
	for i, n := range t.publishers {
		for j := range t.attempts[i] {
			a := &t.attempts[i][j]
			for deadline := time.Now().Add(n.cluster.Timeout); a.err != nil && a.append.IdempotencyKey != ""; {
				if time.Now().After(deadline) {
					return fmt.Errorf("after the fault: %w", a.err)
				}
				a.result, a.err = n.store(a.append)
				time.Sleep(time.Millisecond)
			}
		}
	}
	return nil
}

// awaitDelivery publishes until the follower receives a publication that was stored after the fault.
func (t *historyTraffic) awaitDelivery() error {
	return t.follower.await("delivery after the fault", func() bool {
		t.follower.mu.Unlock()
		t.publish(1, t.follower.cluster.Timeout/200)
		t.follower.mu.Lock()
		last := t.attempts[0][len(t.attempts[0])-1]
		for _, p := range t.follower.published[t.topic] {
			if last.err == nil && p.Position == last.result.Position {
				return true
			}
		}
		return false
	})
}

// checkStored checks that the results of all attempts are true.
func (t *historyTraffic) checkStored(page broker.Page) error {
	if len(page.Publications) == 0 || page.Publications[0].Position.Offset != 1 {
		return errors.New("the first publication is not stored")
	}
	stored := map[string][]broker.Position{}
	for _, p := range page.Publications {
		stored[string(p.Packet)] = append(stored[string(p.Packet)], p.Position)
	}
	for _, attempts := range t.attempts {
		for _, a := range attempts {
			positions := stored[string(a.append.Packet)]
			switch {
			case len(positions) > 1:
				return fmt.Errorf("%q is stored at %v", a.append.Packet, positions)
			case a.err == nil && (len(positions) != 1 || positions[0] != a.result.Position):
				return fmt.Errorf("%q is stored at %v, want %v", a.append.Packet, positions, a.result.Position)
			case a.err != nil && errors.CodeOf(a.err) != errors.OutcomeUnknown && len(positions) > 0:
				return fmt.Errorf("%q is stored at %v though Append returned %w", a.append.Packet, positions, a.err)
			}
		}
	}
	return checkAdjacent(page.Publications)
}

// checkDelivered checks that the follower has received what is stored, and that what follows its
// last publication was published before the last call of Following.
func (t *historyTraffic) checkDelivered(page broker.Page) error {
	n := t.follower
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(page.Publications) != int(page.Position.Offset) {
		return fmt.Errorf("%d publications are stored up to offset %d", len(page.Publications), page.Position.Offset)
	}
	last := uint64(0)
	for _, p := range n.published[t.topic] {
		if p.Position.Offset == 0 || p.Position.Offset > page.Position.Offset || !samePublication(p, page.Publications[p.Position.Offset-1]) {
			return fmt.Errorf("%s was delivered, but is not stored", describe(p))
		}
		last = max(last, p.Position.Offset)
	}
	for _, p := range page.Publications[last:] {
		var publisher, number int
		if _, err := fmt.Sscan(string(p.Packet), &publisher, &number); err != nil {
			return fmt.Errorf("packet %q: %w", p.Packet, err)
		}
		if t.attempts[publisher][number].begun.After(n.followedAt[t.topic]) {
			return fmt.Errorf("offset %d was stored after Following, but not delivered; the last one is %d", p.Position.Offset, last)
		}
	}
	return nil
}
