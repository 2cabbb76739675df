package brokertest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// readAll returns the pages of a batch, none of which may have an error.
func (n *historyNode) readAll(b broker.Batch) ([]broker.BatchPage, error) {
	ctx, cancel := n.timeout()
	defer cancel()
	for i, q := range b.Topics {
		if q.Retention == (broker.Retention{}) {
			b.Topics[i].Retention = keepAll()
		}
	}
	pages, err := n.ReadAll(ctx, b)
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %d topics: %w", len(b.Topics), err)
	case len(pages) != len(b.Topics):
		return nil, fmt.Errorf("reading %d topics returned %d pages", len(b.Topics), len(pages))
	}
	for i, p := range pages {
		if p.Err != nil {
			return nil, fmt.Errorf("reading %.40q among %d topics: %w", b.Topics[i].Topic, len(b.Topics), p.Err)
		}
	}
	return pages, nil
}

// batchesEqualReads reads topics with 0 to 7 publications, some of which have expired, from all offsets.
func batchesEqualReads(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	var topics []string
	for i := range 8 {
		topics = append(topics, c.topic())
		if err := nodes[0].storeAll(topics[i], keepAll(), numbers(i/2)...); err != nil {
			return err
		}
	}
	time.Sleep(c.Age)
	expires := time.Now() // what was stored before
	time.Sleep(c.Age)
	for i, topic := range topics {
		if err := nodes[0].storeAll(topic, keepAll(), numbers(i-i/2)...); err != nil {
			return err
		}
	}
	for _, limit := range []int{-1, 0, 1, 3, 1000} {
		for after := range uint64(9) {
			began := time.Now()
			err := nodes[1].batchEqualsReads(topics, expires, after, limit)
			for err != nil && time.Since(began) > c.Age*3/4 { // when the store has read, the age was too short
				began = time.Now()
				err = nodes[1].batchEqualsReads(topics, expires, after, limit)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// batchOfFullHistoryEqualsRead reads from positions before, in and behind what a full history has dropped.
func batchOfFullHistoryEqualsRead(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(1)
	defer closeAll()
	topic := c.topic()
	if err := nodes[0].storeAll(topic, broker.Retention{Messages: 100}, numbers(200)...); err != nil {
		return err
	}
	for _, after := range []uint64{0, 50, 90, 150} {
		if err := nodes[0].batchEqualsReads([]string{topic}, time.Now().Add(-time.Hour), after, 80); err != nil {
			return err
		}
	}
	return nil
}

// batchEqualsReads reads the publications after an offset that were stored after a time, together and one topic
// after the other.
func (n *historyNode) batchEqualsReads(topics []string, expires time.Time, after uint64, limit int) error {
	b := broker.Batch{MaxMessages: 1000, MaxBytes: 1000}
	for _, topic := range topics {
		r := broker.Retention{Messages: 100, Age: time.Since(expires)}
		b.Topics = append(b.Topics, broker.TopicQuery{Topic: topic, Retention: r, After: after, Limit: limit})
	}
	pages, err := n.readAll(b)
	if err != nil {
		return err
	}
	for i, q := range b.Topics {
		q.Retention.Age = time.Since(expires)
		want, err := n.read(broker.Query{Topic: q.Topic, Retention: q.Retention, After: after, Limit: limit})
		if err != nil {
			return err
		}
		err = comparePublications("selected", pages[i].Publications, want.Publications)
		if err != nil || pages[i].Position != want.Position || pages[i].Previous != want.Previous || pages[i].Omitted {
			return fmt.Errorf("page of %+v: %+v, want %+v: %w", q, pages[i].Page, want, err)
		}
	}
	return nil
}

// mostInBatch is how many publications batchesAreBounded reads without bounds.
const mostInBatch = 3 + 1 + 2 + 4

// batchesAreBounded reads topics of different lengths within all bounds up to a little more than enough.
func batchesAreBounded(c HistoryCluster) error {
	const packetBytes = 10
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	lengths := []int{3, 0, 1, 2, 5}
	var queries []broker.TopicQuery
	for _, n := range lengths {
		q := broker.TopicQuery{Topic: c.topic(), Limit: 4}
		for range n {
			if err := nodes[0].storeAll(q.Topic, keepAll(), strings.Repeat("x", packetBytes)); err != nil {
				return err
			}
		}
		queries = append(queries, q)
	}
	for messages := range mostInBatch + 2 {
		for bytes := -1; bytes <= packetBytes*mostInBatch+1; bytes += 3 {
			pages, err := nodes[1].readAll(broker.Batch{Topics: queries, MaxMessages: messages, MaxBytes: bytes})
			if err != nil {
				return err
			}
			if err := checkBounds(pages, lengths, messages, max(bytes, 0)/packetBytes); err != nil {
				return fmt.Errorf("with at most %d messages and %d bytes: %w", messages, bytes, err)
			}
		}
	}
	return nil
}

// checkBounds checks that pages have all publications or none, no more than messages, and no more than packets
// because of their bytes, and that what was omitted did not fit.
func checkBounds(pages []broker.BatchPage, lengths []int, messages, packets int) error {
	returned, omitted := 0, 0
	for i, p := range pages {
		n := min(lengths[i], 4)
		switch {
		case p.Position.Offset != uint64(lengths[i]):
			return fmt.Errorf("topic %d is at offset %d, want %d", i, p.Position.Offset, lengths[i])
		case p.Omitted && len(p.Publications) > 0, !p.Omitted && len(p.Publications) != n:
			return fmt.Errorf("topic %d has %d publications, omitted: %t; want %d or none", i, len(p.Publications), p.Omitted, n)
		case p.Omitted:
			omitted += n
		default:
			returned += n
		}
	}
	if returned > messages || returned > packets {
		return fmt.Errorf("%d publications are returned", returned)
	}
	for i, p := range pages {
		n, others := min(lengths[i], 4), returned
		if packets < mostInBatch {
			others += omitted - n // those that were omitted because of their bytes count, too
		}
		if p.Omitted && others+n <= messages && returned+n <= packets {
			return fmt.Errorf("topic %d with %d publications is omitted; %d are returned", i, n, returned)
		}
	}
	return nil
}

// batchesInFaults reads topics during each fault of the node that reads, while another one publishes.
func batchesInFaults(c HistoryCluster) error {
	faults := append([]Fault{{Name: "no fault", Begin: func(broker.Node) func() { return func() {} }}}, c.Faults...)
	for _, fault := range faults {
		if err := c.readAllInFault(fault); err != nil {
			return fmt.Errorf("%s: %w", fault.Name, err)
		}
	}
	return nil
}

func (c HistoryCluster) readAllInFault(fault Fault) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	b := broker.Batch{MaxMessages: 1000, MaxBytes: 1 << 20}
	for range 3 {
		b.Topics = append(b.Topics, broker.TopicQuery{Topic: c.topic(), Retention: keepAll(), Limit: 1000})
	}
	begun, lasts := time.Now(), fault.Duration
	end := fault.Begin(nodes[1].HistoryNode)
	for stored := 1; stored <= packetsInFault && time.Since(begun) <= lasts; stored++ {
		for _, q := range b.Topics {
			if err := nodes[0].storeAll(q.Topic, keepAll(), "packet"); err != nil {
				end()
				return err
			}
		}
		if err := nodes[1].readAllOrFail(b, stored, lasts/packetsInFault); err != nil {
			end()
			return err
		}
		time.Sleep(lasts / packetsInFault)
	}
	end()
	return nodes[1].await("a batch without an error", func() bool {
		_, err := nodes[1].readAll(b)
		return err == nil
	})
}

// readAllOrFail reads topics that have the same number of publications.
func (n *historyNode) readAllOrFail(b broker.Batch, stored int, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), max(timeout, time.Millisecond))
	defer cancel()
	pages, err := n.ReadAll(ctx, b)
	if err != nil {
		return nil //nolint:nilerr // a fault
	}
	if len(pages) != len(b.Topics) {
		return fmt.Errorf("%d topics have %d pages", len(b.Topics), len(pages))
	}
	for _, p := range pages {
		if p.Err == nil && (p.Position.Offset != uint64(stored) || len(p.Publications) != stored) {
			return errors.Errorf(errors.Internal, "%d publications at offset %d are returned without an error, want %d", len(p.Publications), p.Position.Offset, stored)
		}
	}
	return nil
}
