package brokertest

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// refuses checks that an Append returns an error with a code.
func (n *historyNode) refuses(a broker.Append, want errors.Code) error {
	result, err := n.store(a)
	if got := errors.CodeOf(err); got != want || result != (broker.Appended{}) {
		return fmt.Errorf("an Append with fence %d, last: %t, returned %+v and the code %q, want %q", a.Fence, a.Last, result, got, want)
	}
	return nil
}

// storesAt checks that an Append stores a publication at an offset.
func (n *historyNode) storesAt(a broker.Append, offset uint64) error {
	result, err := n.store(a)
	if err != nil {
		return err
	}
	if result.Duplicate || result.Position.Offset != offset {
		return fmt.Errorf("an Append with fence %d returned %+v, want offset %d", a.Fence, result, offset)
	}
	return nil
}

// hasOnly checks that exactly these packets are stored and were delivered to a follower, and that no
// publication has changed the state.
func (n *historyNode) hasOnly(follower *historyNode, topic string, packets ...string) error {
	page, err := n.history(topic)
	state, stateErr := n.readState(topic, keepAll())
	if err = errors.Join(err, stateErr, n.has(topic, packets...), comparePublications("in the state", state.Publications, nil)); err != nil {
		return err
	}
	return follower.receives(topic, page.Publications)
}

// fences are in ascending order. As text, as signed integers or as floating-point numbers they are not.
func fences() []uint64 {
	return []uint64{0, 9, 10, 1 << 53, 1<<53 + 1, math.MaxUint64 - 1, math.MaxUint64}
}

func lowerFenceIsRefused(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic := c.topic()
	if err := nodes[1].follow(topic); err != nil {
		return err
	}
	var packets []string
	for i, fence := range fences() {
		packets = append(packets, fmt.Sprint(fence))
		a := broker.Append{Topic: topic, Packet: []byte(packets[i]), Fence: fence, IdempotencyKey: fmt.Sprint("key ", i)}
		if err := nodes[i%2].storesAt(a, uint64(i+1)); err != nil {
			return err
		}
		for j, lower := range fences()[:i] {
			next := fmt.Sprint("key ", i+1) // a refused publication leaves it unused
			refused := broker.Append{Topic: topic, Packet: []byte("refused"), StateKey: "key", Fence: lower, IdempotencyKey: next}
			if err := nodes[(i+j)%2].refuses(refused, errors.Aborted); err != nil {
				return err
			}
		}
	}
	return nodes[0].hasOnly(nodes[1], topic, packets...)
}

func higherFenceIsAccepted(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic, other, offset := c.topic(), c.topic(), uint64(0)
	for _, fence := range fences() {
		for _, n := range nodes {
			offset++
			if err := n.storesAt(broker.Append{Topic: topic, Fence: fence}, offset); err != nil {
				return err
			}
		}
	}
	return nodes[0].storeAll(other, keepAll(), "another topic has no fence")
}

// duplicatesPassFences repeats publications whose fence is outdated, and those of a closed topic.
func duplicatesPassFences(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic := c.topic()
	first, err := nodes[0].store(broker.Append{Topic: topic, Fence: 1, IdempotencyKey: "first"})
	if err != nil {
		return err
	}
	// A duplicate stores nothing, so it neither raises the fence nor closes the topic.
	err = nodes[1].repeats(broker.Append{Topic: topic, Fence: 100, Last: true, IdempotencyKey: "first"}, first.Position)
	if err = errors.Join(err, nodes[0].storesAt(broker.Append{Topic: topic, Fence: 2}, 2)); err != nil {
		return err
	}
	repeated := broker.Append{Topic: topic, Fence: 1, IdempotencyKey: "first"}
	if err := nodes[1].repeats(repeated, first.Position); err != nil {
		return err
	}
	last, err := nodes[1].store(broker.Append{Topic: topic, Fence: 2, Last: true, IdempotencyKey: "last"})
	if err != nil {
		return err
	}
	return errors.Join(
		nodes[0].repeats(repeated, first.Position),
		nodes[0].repeats(broker.Append{Topic: topic, Last: true, IdempotencyKey: "last"}, last.Position),
	)
}

// concurrentFences replaces a producer by another one while both have several publications in flight.
func concurrentFences(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic := c.topic()
	got, err := storeConcurrently(nodes, topic, errors.Aborted, '2', func(caller, number int) broker.Append {
		fence := 1 + caller%2
		return broker.Append{Topic: topic, Fence: uint64(fence), Packet: fmt.Appendf(nil, "%d %d %d", fence, caller, number)}
	})
	if want := concurrentCallers / 2 * concurrentEach; err == nil && got != want {
		return fmt.Errorf("%d publications with the higher fence are stored, want %d", got, want)
	}
	return err
}

// concurrentCloses closes a topic with several calls while other publications are in flight.
func concurrentCloses(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic := c.topic()
	got, err := storeConcurrently(nodes, topic, errors.FailedPrecondition, '1', func(caller, number int) broker.Append {
		last := number / (concurrentEach / 2)
		return broker.Append{Topic: topic, Last: last > 0, Packet: fmt.Appendf(nil, "%d %d %d", last, caller, number)}
	})
	if err == nil && got != 1 {
		return fmt.Errorf("%d publications have closed the topic, want 1", got)
	}
	return errors.Join(err, nodes[1].readsClosed(topic, true))
}

const concurrentCallers, concurrentEach = 16, 20

// storeConcurrently appends publications with all nodes, and returns how many packets that begin with a
// byte are stored. It checks that publications without an error are stored, that others have the code of a
// refusal, and that packets are stored in the order of their first bytes.
func storeConcurrently(nodes []*historyNode, topic string, refusal errors.Code, first byte, publication func(caller, number int) broker.Append) (number int, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var wrong error
	stored := map[string]broker.Position{}
	for caller := range concurrentCallers {
		wg.Go(func() {
			for number := range concurrentEach {
				a := publication(caller, number)
				result, err := nodes[caller%len(nodes)].store(a)
				mu.Lock()
				if err == nil {
					stored[string(a.Packet)] = result.Position
				} else if errors.CodeOf(err) != refusal {
					wrong = errors.Join(wrong, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	page, err := nodes[0].history(topic)
	if err = errors.Join(wrong, err); err != nil {
		return 0, err
	}
	for _, p := range page.Publications {
		if p.Packet[0] == first {
			number++
		}
	}
	return number, checkOrder(page.Publications, stored)
}

// checkOrder checks that publications have the positions that their publishers know, and that the first
// bytes of packets are in ascending order.
func checkOrder(publications []broker.Publication, stored map[string]broker.Position) error {
	if len(publications) != len(stored) {
		return fmt.Errorf("%d publications are stored, but %d have a position", len(publications), len(stored))
	}
	highest := byte('0')
	for _, p := range publications {
		if position := stored[string(p.Packet)]; position != p.Position {
			return fmt.Errorf("%q is stored at %+v, but Append returned %+v", p.Packet, p.Position, position)
		}
		if p.Packet[0] < highest {
			return fmt.Errorf("%q is stored at offset %d, after a packet that begins with %c", p.Packet, p.Position.Offset, highest)
		}
		highest = p.Packet[0]
	}
	return nil
}

func closedTopicRefuses(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic := c.topic()
	err := errors.Join(
		nodes[1].follow(topic),
		nodes[0].storesAt(broker.Append{Topic: topic, Packet: []byte("first"), Fence: 2}, 1),
		nodes[1].refuses(broker.Append{Topic: topic, Fence: 1, Last: true}, errors.Aborted), // closes nothing
		nodes[1].storesAt(broker.Append{Topic: topic, Packet: []byte("last"), Fence: 2, Last: true, IdempotencyKey: "key"}, 2),
	)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		for _, a := range []broker.Append{{}, {Fence: 1}, {Fence: 2}, {Fence: 3}, {Fence: 3, Last: true, IdempotencyKey: "other"}} {
			a.Topic, a.Packet, a.StateKey = topic, []byte("refused"), "key"
			if err := n.refuses(a, errors.FailedPrecondition); err != nil {
				return err
			}
		}
	}
	return errors.Join(nodes[0].hasOnly(nodes[1], topic, "first", "last"), nodes[0].storeAll(c.topic(), keepAll(), "another topic is open"))
}

// readsClosed checks what pages of every size say, alone and in a batch.
func (n *historyNode) readsClosed(topic string, want bool) error {
	for _, limit := range []int{0, 1, 10} {
		page, err := n.read(broker.Query{Topic: topic, Limit: limit})
		if err != nil {
			return err
		}
		for _, maximum := range []int{0, 100} { // the first one omits the page
			pages, err := n.readAll(broker.Batch{Topics: []broker.TopicQuery{{Topic: topic, Limit: limit}}, MaxMessages: maximum, MaxBytes: maximum})
			if err != nil {
				return err
			}
			if page.Closed != want || pages[0].Closed != want {
				return fmt.Errorf("with limit %d, Read returned closed: %t, and ReadAll %t; want %t", limit, page.Closed, pages[0].Closed, want)
			}
		}
	}
	return nil
}

func closedIsRead(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(3)
	defer closeAll()
	topic := c.topic()
	return errors.Join(
		nodes[0].readsClosed(topic, false),
		nodes[1].storesAt(broker.Append{Topic: topic, Packet: []byte("first")}, 1),
		nodes[0].readsClosed(topic, false),
		nodes[1].storesAt(broker.Append{Topic: topic, Packet: []byte("last"), Last: true}, 2),
		nodes[0].readsClosed(topic, true),
		nodes[1].readsClosed(topic, true),
		nodes[2].readsClosed(topic, true),
	)
}

// fenceOutlivesPublications stores publications that are too large to be kept, and some that expire.
func fenceOutlivesPublications(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	for _, r := range []broker.Retention{{Messages: 10, Bytes: 1}, {Messages: 10, Age: c.Age}} {
		a := broker.Append{Topic: c.topic(), Retention: r, Packet: []byte("packet"), Fence: 2}
		if err := nodes[0].storesAt(a, 1); err != nil {
			return err
		}
		time.Sleep(2 * c.Age)
		lower, last := a, a
		lower.Fence, last.Last = 1, true
		if err := errors.Join(nodes[1].refuses(lower, errors.Aborted), nodes[0].storesAt(last, 2)); err != nil {
			return err
		}
		time.Sleep(2 * c.Age)
		page, err := nodes[1].read(broker.Query{Topic: a.Topic, Retention: r, Limit: 10})
		if err != nil {
			return err
		}
		if len(page.Publications) > 0 || !page.Closed {
			return fmt.Errorf("with %+v, the page has %d publications, closed: %t; want none and true", r, len(page.Publications), page.Closed)
		}
		if err := nodes[1].refuses(a, errors.FailedPrecondition); err != nil {
			return err
		}
	}
	return nil
}

// forgottenFence waits until the store has forgotten a closed topic: it then has no fence and is open.
func forgottenFence(c HistoryCluster) error {
	if c.MetadataAge == 0 {
		return nil
	}
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic, r := c.topic(), broker.Retention{Messages: 10, Age: c.Age}
	if err := nodes[0].storesAt(broker.Append{Topic: topic, Retention: r, Fence: 2, Last: true}, 1); err != nil {
		return err
	}
	if err := nodes[1].staysAt(c.topic(), 2*c.MetadataAge+2*c.Age); err != nil {
		return err
	}
	if after, err := nodes[1].position(topic); err != nil || after.Offset > 0 {
		return err // it is still known
	}
	return errors.Join(nodes[1].readsClosed(topic, false), nodes[1].storesAt(broker.Append{Topic: topic, Retention: r}, 1))
}

func requiredEpoch(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic := c.topic()
	first, err := nodes[0].store(broker.Append{Topic: topic, Packet: []byte("any epoch")})
	if err != nil {
		return err
	}
	epoch := first.Position.Epoch
	for i, n := range nodes {
		if err := n.refuses(broker.Append{Topic: topic, Epoch: epoch + "0", IdempotencyKey: "key", Last: true, Fence: 1}, errors.Aborted); err != nil {
			return err
		}
		if err := n.storesAt(broker.Append{Topic: topic, Epoch: epoch}, uint64(i+2)); err != nil {
			return err
		}
	}
	if err := nodes[0].storesAt(broker.Append{Topic: topic, Epoch: epoch, IdempotencyKey: "key", StateKey: "state", Fence: 1}, 4); err != nil {
		return err
	}
	again, err := nodes[1].store(broker.Append{Topic: topic, Epoch: epoch + "0", IdempotencyKey: "key"})
	if err != nil {
		return err
	}
	if want := (broker.Position{Epoch: epoch, Offset: 4}); !again.Duplicate || again.Position != want {
		return fmt.Errorf("a duplicate that requires another epoch returned %+v, want the position %v", again, want)
	}
	return nil
}
