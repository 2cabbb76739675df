package brokertest

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

func firstPositionExists(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(3)
	defer closeAll()
	topic := c.topic()
	positions, errs := make([]broker.Position, len(nodes)), make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { positions[i], errs[i] = n.position(topic) })
	}
	wg.Wait()
	state, err := nodes[1].readState(topic, keepAll())
	if err = errors.Join(append(errs, err)...); err != nil {
		return err
	}
	first := positions[0]
	if first.Epoch == "" || first.Offset != 0 {
		return fmt.Errorf("the first position is %+v, want offset 0 and an epoch", first)
	}
	for _, p := range append(positions, state.Position) {
		if p != first {
			return fmt.Errorf("two first positions: %+v and %+v", p, first)
		}
	}
	return nodes[2].storeAll(topic, keepAll(), "first")
}

func offsetsAreGapless(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic, packets := c.topic(), []string{}
	for i := range 200 {
		packets = append(packets, strconv.Itoa(i))
		if err := nodes[i%2].storeAll(topic, keepAll(), packets[i]); err != nil {
			return err
		}
	}
	return errors.Join(nodes[0].has(topic, packets...), nodes[1].has(topic, packets...))
}

func publicationReachesFollowers(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(3)
	defer closeAll()
	topic := c.topic()
	before := time.Now()
	for _, n := range nodes {
		if err := n.follow(topic); err != nil {
			return err
		}
	}
	for _, a := range []broker.Append{
		{Packet: []byte("plain")},
		{Packet: []byte("price"), StateKey: "EUR", IdempotencyKey: "1"},
		{Packet: []byte("removed"), StateKey: "EUR", Removed: true},
	} {
		a.Topic = topic
		if _, err := nodes[0].store(a); err != nil {
			return err
		}
	}
	page, err := nodes[1].history(topic)
	if err != nil {
		return err
	}
	if len(page.Publications) != 3 {
		return fmt.Errorf("%d publications are stored, want 3", len(page.Publications))
	}
	for i, p := range page.Publications {
		want := []broker.Publication{{Packet: []byte("plain")}, {Packet: []byte("price"), StateKey: "EUR"}, {Packet: []byte("removed"), StateKey: "EUR", Removed: true}}[i]
		want.Position, want.At = broker.Position{Epoch: page.Position.Epoch, Offset: uint64(i + 1)}, p.At
		if !samePublication(p, want) {
			return fmt.Errorf("%s is stored, want %s", describe(p), describe(want))
		}
		if age := p.At.Sub(before); age.Abs() > time.Hour { // the clock of the store may differ
			return fmt.Errorf("a publication was stored at %v, want about %v", p.At, before)
		}
	}
	for _, n := range nodes {
		err = errors.Join(err, n.receives(topic, page.Publications))
	}
	return err
}

func historyPackets(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic, large := c.topic(), strings.Repeat("\x00\r\n\xff", 1<<18)
	if err := nodes[1].follow(topic); err != nil {
		return err
	}
	strange := []string{"a:b", "{a}", "*", "ä", "\x00", "\r\n", "\xff\xfe", " ", "0", large[:1000]}
	packets := append([]string{"", large}, strange...)
	for i, packet := range packets {
		a := broker.Append{Topic: topic, Packet: []byte(packet)}
		if i >= 2 {
			a.StateKey, a.IdempotencyKey = packet, packet
		}
		if _, err := nodes[0].store(a); err != nil {
			return err
		}
	}
	page, err := nodes[1].history(topic)
	if err = errors.Join(err, nodes[1].has(topic, packets...)); err != nil {
		return err
	}
	state, err := nodes[1].readState(topic, keepAll())
	if err != nil {
		return err
	}
	if err := compareState(state, page.Position, page.Publications[2:]...); err != nil {
		return err
	}
	for i, packet := range strange {
		a := broker.Append{Topic: topic, Packet: []byte("again"), IdempotencyKey: packet}
		if err := nodes[1].repeats(a, broker.Position{Epoch: page.Position.Epoch, Offset: uint64(i + 3)}); err != nil {
			return err
		}
	}
	return nodes[1].receives(topic, page.Publications)
}

// historiesAreSeparate uses names that collide if an adapter escapes, matches or truncates them.
func historiesAreSeparate(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	prefix := c.topic()
	names := []string{"", "*", ":a", ":a:", ":a:b", "{a}", "{", "}", " a", "\x00", "ä", "%3Aa", strings.Repeat("long", 100), strings.Repeat("long", 100) + "er"}
	for i := range names {
		if i%2 == 0 {
			names[i] = names[i] + prefix
		} else {
			names[i] = prefix + names[i]
		}
		if err := nodes[0].follow(names[i]); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := nodes[1].storeAll(name, keepAll(), name); err != nil {
			return err
		}
	}
	for _, name := range names {
		page, err := nodes[1].history(name)
		if err = errors.Join(err, nodes[0].has(name, name)); err != nil {
			return err
		}
		if err := nodes[0].receives(name, page.Publications); err != nil {
			return err
		}
	}
	return nil
}

// nodesAgreeOnOrder publishes on three nodes while a fourth one reads.
func nodesAgreeOnOrder(c HistoryCluster) error {
	const callers, each = 4, 40
	nodes, closeAll := c.connectNodes(3)
	defer closeAll()
	topic := c.topic()
	for _, n := range nodes {
		if err := n.follow(topic); err != nil {
			return err
		}
	}
	total := len(nodes) * callers * each
	errs := make([]error, len(nodes)*callers+1)
	acknowledged := make([][]broker.Position, len(nodes)*callers)
	var wg sync.WaitGroup
	for caller := range acknowledged {
		wg.Go(func() {
			for number := range each {
				a := broker.Append{Topic: topic, Packet: fmt.Appendf(nil, "%d %d", caller, number)}
				if number%2 == 0 {
					a.IdempotencyKey = string(a.Packet)
				}
				result, err := nodes[caller%len(nodes)].store(a)
				errs[caller] = errors.Join(errs[caller], err)
				acknowledged[caller] = append(acknowledged[caller], result.Position)
			}
		})
	}
	wg.Go(func() { errs[len(acknowledged)] = nodes[0].readWhile(topic, total) })
	wg.Wait()
	page, err := nodes[1].history(topic)
	if err = errors.Join(append(errs, err)...); err != nil {
		return err
	}
	if err := checkAcknowledged(page, acknowledged); err != nil {
		return err
	}
	for _, n := range nodes {
		if err := n.receives(topic, page.Publications); err != nil {
			return err
		}
	}
	return nil
}

// checkAcknowledged checks that the publications of each caller are stored at the positions that it
// received, in its order, and that nothing else is stored.
func checkAcknowledged(page broker.Page, acknowledged [][]broker.Position) error {
	stored, total := map[broker.Position]string{}, 0
	for _, p := range page.Publications {
		stored[p.Position] = string(p.Packet)
	}
	for caller, positions := range acknowledged {
		last := uint64(0)
		for number, position := range positions {
			total++
			if want := fmt.Sprintf("%d %d", caller, number); stored[position] != want {
				return fmt.Errorf("%q is stored at %+v, want %q", stored[position], position, want)
			}
			if position.Offset <= last {
				return fmt.Errorf("caller %d received offset %d after %d", caller, position.Offset, last)
			}
			last = position.Offset
		}
	}
	if len(page.Publications) != total || page.Position.Offset != uint64(total) {
		return fmt.Errorf("%d publications are stored up to offset %d, want %d", len(page.Publications), page.Position.Offset, total)
	}
	return checkAdjacent(page.Publications)
}

// readWhile reads a topic page by page while others publish, and checks that pages are adjacent and
// agree with their positions.
func (n *historyNode) readWhile(topic string, total int) error {
	const limit = 7
	last := uint64(0)
	for deadline := time.Now().Add(n.cluster.Timeout); last < uint64(total) && time.Now().Before(deadline); {
		page, err := n.read(broker.Query{Topic: topic, After: last, Limit: limit})
		if err != nil {
			return err
		}
		before := last
		for _, p := range page.Publications {
			if p.Position.Offset != last+1 {
				return fmt.Errorf("a reader after offset %d received offset %d", last, p.Position.Offset)
			}
			last++
		}
		if last > page.Position.Offset || last-before < limit && last != page.Position.Offset {
			return fmt.Errorf("a page of %d publications ends at %d, its position is %d", last-before, last, page.Position.Offset)
		}
		if last == before {
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}
