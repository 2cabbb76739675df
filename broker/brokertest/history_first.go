package brokertest

import (
	"fmt"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// firstPublicationContinues lets two nodes wait on a topic that was never used.
func firstPublicationContinues(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(3)
	defer closeAll()
	topic := c.topic()
	for _, n := range nodes[:2] {
		if err := n.follow(topic); err != nil {
			return err
		}
	}
	first, err := nodes[0].position(topic)
	if err != nil {
		return err
	}
	if _, err := nodes[2].store(broker.Append{Topic: topic, Packet: []byte("first")}); err != nil {
		return err
	}
	page, err := nodes[1].history(topic)
	if err != nil {
		return err
	}
	first.Offset++
	if page.Position != first || len(page.Publications) != 1 {
		return fmt.Errorf("after the first publication, the position is %+v, want %+v", page.Position, first)
	}
	for _, n := range nodes[:2] {
		if err := n.receives(topic, page.Publications); err != nil {
			return err
		}
	}
	return nil
}

// forgottenPositionsAreNotReused waits until the store has forgotten a topic, several times. Another
// topic, without publications, is read meanwhile.
func forgottenPositionsAreNotReused(c HistoryCluster) error {
	if c.MetadataAge == 0 {
		return nil
	}
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic, idle, r := c.topic(), c.topic(), broker.Retention{Messages: 10, Age: c.Age}
	used := map[broker.Position]bool{}
	ended := map[string]bool{}
	for range 3 {
		for range 3 {
			result, err := nodes[0].store(broker.Append{Topic: topic, Retention: r})
			if err != nil {
				return err
			}
			if used[result.Position] {
				return fmt.Errorf("position %+v was used again", result.Position)
			}
			used[result.Position] = true
		}
		before, err := nodes[1].read(broker.Query{Topic: topic, Retention: r})
		if err != nil {
			return err
		}
		if err := nodes[0].staysAt(idle, 2*c.MetadataAge+2*c.Age); err != nil {
			return err
		}
		after, err := nodes[1].read(broker.Query{Topic: topic, Retention: r, Limit: 10})
		if err != nil {
			return err
		}
		if after.Position.Epoch == before.Position.Epoch {
			continue // it is still known
		}
		ended[before.Position.Epoch] = true
		if after.Position.Offset != 0 || ended[after.Position.Epoch] || ended[after.Previous.Epoch] {
			return fmt.Errorf("after %+v, a forgotten topic has %+v, want a new epoch and no previous one", before.Position, after)
		}
	}
	return nil
}

// staysAt reads a topic without publications for some time. When its epoch ends, the next one must say
// that.
func (n *historyNode) staysAt(topic string, d time.Duration) error {
	const reads = 200
	last, err := n.position(topic)
	for range reads {
		if err != nil {
			return err
		}
		time.Sleep(d / reads)
		var page broker.Page
		page, err = n.history(topic)
		if err == nil && page.Position != last && page.Previous != last {
			err = fmt.Errorf("a topic without publications has %+v after %+v", page, last)
		}
		last = page.Position
	}
	return err
}
