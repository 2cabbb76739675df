package brokertest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// numbers returns the numbers from 1 to n as packets.
func numbers(n int) (packets []string) {
	for i := range n {
		packets = append(packets, strconv.Itoa(i+1))
	}
	return packets
}

// retentionSlack is how many publications more than Retention.Messages a store may keep.
const retentionSlack = 500

func retentionByMessages(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic, r := c.topic(), broker.Retention{Messages: 20, Age: time.Hour}
	stored := r.Messages + retentionSlack + 100
	if err := nodes[0].storeAll(topic, r, numbers(stored)...); err != nil {
		return err
	}
	page, err := nodes[1].history(topic)
	if err != nil {
		return err
	}
	if n := len(page.Publications); n < r.Messages || n > r.Messages+retentionSlack {
		return fmt.Errorf("%d publications are kept, want %d", n, r.Messages)
	}
	newest := page.Publications[len(page.Publications)-r.Messages:]
	for i, p := range newest {
		if want := stored - r.Messages + i + 1; p.Position.Offset != uint64(want) || string(p.Packet) != strconv.Itoa(want) {
			return fmt.Errorf("%q is kept at %d, want %d", p.Packet, p.Position.Offset, want)
		}
	}
	return checkAdjacent(page.Publications)
}

func retentionByBytes(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic, r := c.topic(), broker.Retention{Messages: 10000, Age: time.Hour, Bytes: 1000}
	packet := strings.Repeat("x", 100)
	for range 100 {
		if err := nodes[0].storeAll(topic, r, packet); err != nil {
			return err
		}
	}
	page, err := nodes[1].history(topic)
	if err != nil {
		return err
	}
	if n := len(page.Publications); n < 1 || n > 10 {
		return fmt.Errorf("%d packets of 100 bytes are kept, want at most 10", n)
	}
	if last := page.Publications[len(page.Publications)-1].Position; last != page.Position {
		return fmt.Errorf("the newest publication that is kept is at %+v, want %+v", last, page.Position)
	}
	return checkAdjacent(page.Publications)
}

func retentionByAge(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic, r := c.topic(), broker.Retention{Messages: 100, Age: c.Age}
	long := broker.Retention{Messages: 100, Age: time.Hour}
	if err := nodes[0].storeAll(topic, long, "1", "2"); err != nil {
		return err
	}
	time.Sleep(2 * c.Age)
	page, err := nodes[1].read(broker.Query{Topic: topic, Retention: r, Limit: 100})
	if err != nil {
		return err
	}
	if len(page.Publications) > 0 || page.Position.Offset != 2 {
		return fmt.Errorf("%d publications of age %v are returned at offset %d, want none at 2", len(page.Publications), 2*c.Age, page.Position.Offset)
	}
	if err := errors.Join(nodes[1].has(topic, "1", "2"), nodes[0].storeAll(topic, r, "3")); err != nil {
		return err
	}
	time.Sleep(2 * c.Age)
	if err := nodes[0].storeAll(topic, r, "4"); err != nil { // removes the others
		return err
	}
	for _, backward := range []bool{false, true} {
		q := broker.Query{Topic: topic, Retention: broker.Retention{Age: c.Age + c.Age/2}, Limit: 100, Backward: backward}
		if page, err = nodes[1].read(q); err != nil {
			return err
		}
		for _, p := range page.Publications {
			if p.Position.Offset < 4 {
				return fmt.Errorf("offset %d of age %v is returned", p.Position.Offset, 2*c.Age)
			}
		}
	}
	return nil
}

func metadataOutlivesPublications(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic, r := c.topic(), broker.Retention{Messages: 10, Age: c.Age}
	if err := nodes[0].storeAll(topic, r, numbers(5)...); err != nil {
		return err
	}
	before, err := nodes[0].position(topic)
	if err != nil {
		return err
	}
	for range 3 {
		time.Sleep(2 * c.Age)
		page, err := nodes[1].read(broker.Query{Topic: topic, Retention: r, Limit: 10})
		if err != nil {
			return err
		}
		if page.Position != before || len(page.Publications) > 0 {
			return fmt.Errorf("%d publications at %+v are returned, want none at %+v", len(page.Publications), page.Position, before)
		}
	}
	first, err := nodes[1].store(broker.Append{Topic: topic, Retention: r})
	if err != nil {
		return err
	}
	before.Offset++
	if first.Position != before {
		return fmt.Errorf("the publication after all have expired has %+v, want %+v", first.Position, before)
	}
	return nil
}

func metadataIsKeptByReads(c HistoryCluster) error {
	const rounds = 4
	if c.MetadataAge == 0 {
		return nil
	}
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	r := broker.Retention{Messages: 10, Age: c.Age}
	for name, read := range map[string]func(topic string) (broker.Position, error){
		"position": func(topic string) (broker.Position, error) {
			page, err := nodes[1].read(broker.Query{Topic: topic, Retention: r})
			return page.Position, err
		},
		"page": func(topic string) (broker.Position, error) {
			page, err := nodes[1].read(broker.Query{Topic: topic, Retention: r, After: 5, Limit: 10})
			return page.Position, err
		},
		"state": func(topic string) (broker.Position, error) {
			state, err := nodes[1].readState(topic, r)
			return state.Position, err
		},
		"batch": func(topic string) (broker.Position, error) {
			pages, err := nodes[1].readAll(broker.Batch{Topics: []broker.TopicQuery{{Topic: topic, Retention: r}}})
			if err != nil {
				return broker.Position{}, err
			}
			return pages[0].Position, nil
		},
	} {
		topic := c.topic()
		if err := nodes[0].storeAll(topic, r, numbers(5)...); err != nil {
			return err
		}
		before, err := read(topic)
		for range rounds {
			if err != nil {
				return err
			}
			time.Sleep(c.MetadataAge * 9 / 10)
			var after broker.Position
			if after, err = read(topic); err == nil && after != before {
				err = fmt.Errorf("reading the %s returned %+v, want %+v", name, after, before)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func positionsSurviveRetentionChange(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic := c.topic()
	first, err := nodes[0].store(broker.Append{Topic: topic, Packet: []byte("state"), StateKey: "key", IdempotencyKey: "key"})
	if err != nil {
		return err
	}
	position := first.Position
	for i, r := range []broker.Retention{
		{Messages: 10, Age: time.Minute},
		{Messages: 2, Age: time.Hour, Bytes: 1},
		{Messages: 1000, Age: 48 * time.Hour},
		{},
		{Messages: 5, Age: time.Hour, Bytes: 1 << 20},
	} {
		page, err := nodes[i%2].read(broker.Query{Topic: topic, Retention: r})
		if err != nil {
			return err
		}
		if page.Position != position {
			return fmt.Errorf("the position with retention %+v is %+v, want %+v", r, page.Position, position)
		}
		ctx, cancel := nodes[0].timeout()
		defer cancel()
		result, err := nodes[i%2].Append(ctx, broker.Append{Topic: topic, Retention: r})
		if err != nil {
			return err
		}
		position.Offset++
		if result.Position != position {
			return fmt.Errorf("the publication with retention %+v has %+v, want %+v", r, result.Position, position)
		}
		state, err := nodes[i%2].readState(topic, r)
		if err != nil {
			return err
		}
		if len(state.Publications) != 1 || state.Publications[0].Position != first.Position {
			return fmt.Errorf("the state with retention %+v is %+v, want the first publication", r, state)
		}
		repeated := broker.Append{Topic: topic, Retention: r, IdempotencyKey: "key"}
		if err := nodes[i%2].repeats(repeated, first.Position); err != nil {
			return err
		}
	}
	return nil
}

func readsDeleteNothing(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic := c.topic()
	for _, packet := range numbers(10) {
		if _, err := nodes[0].store(broker.Append{Topic: topic, Packet: []byte(packet), StateKey: packet}); err != nil {
			return err
		}
	}
	time.Sleep(2 * c.Age)
	small := broker.Retention{Messages: 1, Age: c.Age, Bytes: 1}
	for _, n := range nodes {
		page, err := n.read(broker.Query{Topic: topic, Retention: small, Limit: 10})
		if err != nil {
			return err
		}
		state, err := n.readState(topic, small)
		if err != nil {
			return err
		}
		if len(page.Publications)+len(state.Publications) > 0 {
			return errors.New("expired publications are returned")
		}
	}
	state, err := nodes[1].readState(topic, keepAll())
	if err != nil {
		return err
	}
	if len(state.Publications) != 10 {
		return fmt.Errorf("%d of 10 keys have a state after reads with a smaller retention", len(state.Publications))
	}
	return nodes[0].has(topic, numbers(10)...)
}

// pagesMatchQueries tries all combinations on a short history.
func pagesMatchQueries(c HistoryCluster) error {
	const stored = 6
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic := c.topic()
	if err := nodes[0].storeAll(topic, keepAll(), numbers(stored)...); err != nil {
		return err
	}
	all, err := nodes[0].history(topic)
	if err != nil {
		return err
	}
	for _, limit := range []int{-1, 0, 1, 2, 4, stored, stored + 1, 1000} {
		for after := range uint64(stored + 3) {
			for before := range uint64(stored + 3) {
				for _, backward := range []bool{false, true} {
					q := broker.Query{Topic: topic, After: after, Before: before, Limit: limit, Backward: backward}
					page, err := nodes[1].read(q)
					if err != nil {
						return err
					}
					err = comparePublications("selected", page.Publications, selected(all.Publications, q))
					if err != nil || page.Position != all.Position || page.Previous != all.Previous {
						return fmt.Errorf("query %+v: position %+v, want %+v: %w", q, page.Position, all.Position, err)
					}
				}
			}
		}
	}
	page, err := nodes[1].read(broker.Query{Topic: topic, After: 1<<53 - 1, Limit: 10})
	return errors.Join(err, comparePublications("selected", page.Publications, nil))
}

// selected is the meaning of a Query.
func selected(all []broker.Publication, q broker.Query) (page []broker.Publication) {
	for _, p := range all {
		if p.Position.Offset > q.After && (q.Before == 0 || p.Position.Offset < q.Before) {
			page = append(page, p)
		}
	}
	n := min(max(q.Limit, 0), len(page))
	if q.Backward {
		return page[len(page)-n:]
	}
	return page[:n]
}

func positionIsCurrent(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(3)
	defer closeAll()
	topic := c.topic()
	if err := nodes[1].follow(topic); err != nil {
		return err
	}
	for i := range 50 {
		errs := make(chan error, 1)
		go func() { errs <- nodes[0].storeAll(topic, keepAll(), "packet") }()
		err := nodes[1].await("publication", func() bool { return len(nodes[1].published[topic]) > i })
		if err != nil {
			return errors.Join(err, <-errs)
		}
		page, err := nodes[2].read(broker.Query{Topic: topic, After: uint64(i), Limit: 10})
		if err = errors.Join(err, <-errs); err != nil {
			return err
		}
		if page.Position.Offset != uint64(i+1) || len(page.Publications) != 1 {
			return fmt.Errorf("a node has received offset %d, but Read returns %d publications at %d", i+1, len(page.Publications), page.Position.Offset)
		}
	}
	return nil
}
