package brokertest

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// repeats checks that an Append is a duplicate.
func (n *historyNode) repeats(a broker.Append, position broker.Position) error {
	got, err := n.store(a)
	if err != nil {
		return err
	}
	if want := (broker.Appended{Position: position, Duplicate: true}); got != want {
		return fmt.Errorf("an Append with idempotency key %.40q returned %+v, want %+v", a.IdempotencyKey, got, want)
	}
	return nil
}

func duplicatesAreNotStored(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	a, b, topic := nodes[0], nodes[1], c.topic()
	if err := b.follow(topic); err != nil {
		return err
	}
	first, err := a.store(broker.Append{Topic: topic, Packet: []byte("first"), IdempotencyKey: "key"})
	if err = errors.Join(err, a.storeAll(topic, keepAll(), "second")); err != nil {
		return err
	}
	if first.Duplicate {
		return errors.New("the first Append with a key is a duplicate")
	}
	for _, n := range nodes {
		repeated := broker.Append{Topic: topic, Packet: []byte("again"), IdempotencyKey: "key", StateKey: "state"}
		if err := n.repeats(repeated, first.Position); err != nil {
			return err
		}
	}
	state, err := a.readState(topic, keepAll())
	if err != nil {
		return err
	}
	if len(state.Publications) > 0 {
		return errors.New("a duplicate has changed the state")
	}
	other, err := a.store(broker.Append{Topic: c.topic(), IdempotencyKey: "key"})
	if err != nil {
		return err
	}
	if other.Duplicate {
		return errors.New("a key of another topic is a duplicate")
	}
	if err := errors.Join(b.storeAll(topic, keepAll(), "third"), b.has(topic, "first", "second", "third")); err != nil {
		return err
	}
	page, err := a.history(topic)
	if err != nil {
		return err
	}
	return b.receives(topic, page.Publications)
}

func concurrentDuplicates(c HistoryCluster) error {
	const rounds, callers = 20, 4
	nodes, closeAll := c.connectNodes(3)
	defer closeAll()
	topic := c.topic()
	for round := range rounds {
		results := make([]broker.Appended, callers*len(nodes))
		errs := make([]error, len(results))
		var wg sync.WaitGroup
		for i := range results {
			wg.Go(func() {
				results[i], errs[i] = nodes[i%len(nodes)].store(broker.Append{Topic: topic, IdempotencyKey: strconv.Itoa(round), Packet: []byte{byte(i)}})
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		stored := 0
		for _, r := range results {
			if !r.Duplicate {
				stored++
			}
			if r.Position.Offset != uint64(round+1) {
				return fmt.Errorf("an Append with a shared key returned offset %d, want %d", r.Position.Offset, round+1)
			}
		}
		if stored != 1 {
			return fmt.Errorf("%d of %d Appends with one key were stored", stored, len(results))
		}
	}
	return nil
}

func keyOutlivesPublication(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic, r := c.topic(), broker.Retention{Messages: 1, Age: c.Age}
	first, err := nodes[0].store(broker.Append{Topic: topic, Retention: r, Packet: []byte("first"), IdempotencyKey: "key"})
	if err = errors.Join(err, nodes[0].storeAll(topic, r, "second", "third")); err != nil {
		return err
	}
	a := broker.Append{Topic: topic, Retention: r, Packet: []byte("again"), IdempotencyKey: "key"}
	if err := nodes[1].repeats(a, first.Position); err != nil {
		return err
	}
	time.Sleep(2 * c.Age)
	return nodes[1].repeats(a, first.Position)
}

func keyExpires(c HistoryCluster) error {
	if c.IdempotencyTime == 0 {
		return nil
	}
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic := c.topic()
	a := broker.Append{Topic: topic, Packet: []byte("packet"), IdempotencyKey: "key"}
	first, err := nodes[0].store(a)
	if err != nil {
		return err
	}
	time.Sleep(c.IdempotencyTime * 3 / 4)
	if err := nodes[1].repeats(a, first.Position); err != nil {
		return err
	}
	time.Sleep(c.IdempotencyTime/2 + time.Second) // a duplicate does not renew the key
	second, err := nodes[1].store(a)
	if err != nil {
		return err
	}
	first.Position.Offset++
	if second != first {
		return fmt.Errorf("an Append with an expired key returned %+v, want %+v", second, first)
	}
	return nodes[0].repeats(a, second.Position)
}
