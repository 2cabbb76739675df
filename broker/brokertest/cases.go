package brokertest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/penstock-go/penstock/errors"
)

func packetReachesSubscribers(c Cluster) error {
	a, b, d := c.connect(), c.connect(), c.connect()
	defer closeAll(a, b, d)
	if err := errors.Join(b.subscribe("news"), d.subscribe("news")); err != nil {
		return err
	}
	a.publish("news", []byte("hello"))
	return errors.Join(b.receives("news", "hello"), d.receives("news", "hello"))
}

func publisherIsExcluded(c Cluster) error {
	a, b := c.connect(), c.connect()
	defer closeAll(a, b)
	if err := errors.Join(a.subscribe("news"), b.subscribe("news")); err != nil {
		return err
	}
	a.publish("news", []byte("hello"))
	return errors.Join(b.receives("news", "hello"), a.receives("news"))
}

// topicsAreSeparate uses names that collide if an adapter escapes, matches or truncates them.
func topicsAreSeparate(c Cluster) error {
	a, b := c.connect(), c.connect()
	defer closeAll(a, b)
	names := []string{"", "*", "a:b", "a", "b", "{a}", "{", "a b", "a\x00b", "ä", "a%3Ab", "a:b:", strings.Repeat("long", 100), strings.Repeat("long", 100) + "er"}
	for _, name := range names[1:] {
		if err := b.subscribe(name); err != nil {
			return err
		}
	}
	for _, name := range names {
		a.publish(name, []byte(name))
	}
	for _, name := range names[1:] {
		if err := b.receives(name, name); err != nil {
			return err
		}
	}
	return b.receives("")
}

func unsubscribeEndsDelivery(c Cluster) error {
	a, b := c.connect(), c.connect()
	defer closeAll(a, b)
	if err := errors.Join(b.subscribe("news"), b.subscribe("end")); err != nil {
		return err
	}
	b.Unsubscribe("news")
	if err := b.subscribe("other"); err != nil { // after it, Unsubscribe is in effect
		return err
	}
	a.publish("news", []byte("too late"))
	a.publish("end", []byte("end"))
	return errors.Join(b.receives("end", "end"), b.receives("news"))
}

func resubscribe(c Cluster) error {
	a, b := c.connect(), c.connect()
	defer closeAll(a, b)
	for n := range 20 {
		if err := b.subscribe("news"); err != nil {
			return err
		}
		if n < 19 {
			b.Unsubscribe("news")
		}
	}
	a.publish("news", []byte("once"))
	return b.receives("news", "once")
}

func subscribedMeansDelivered(c Cluster) error {
	a, b := c.connect(), c.connect()
	defer closeAll(a, b)
	const topics = 50
	for n := range topics {
		topic := "topic " + strconv.Itoa(n)
		if err := b.subscribe(topic); err != nil {
			return err
		}
		a.publish(topic, []byte("hello"))
	}
	return b.await("packet on each topic", func() bool {
		for n := range topics {
			if len(b.packetsLocked("topic "+strconv.Itoa(n))) != 1 {
				return false
			}
		}
		return true
	})
}

func packetsAreOrdered(c Cluster) error {
	a, b := c.connect(), c.connect()
	defer closeAll(a, b)
	if err := b.subscribe("news"); err != nil {
		return err
	}
	var want []string
	for n := range 2000 {
		want = append(want, strconv.Itoa(n))
		a.publish("news", []byte(want[n]))
	}
	return b.receives("news", want...)
}

func concurrentPublishers(c Cluster) error {
	const publishers, each = 4, 300
	nodes := []*node{c.connect(), c.connect(), c.connect()}
	defer closeAll(nodes...)
	for _, n := range nodes {
		if err := n.subscribe("news"); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	for _, n := range nodes {
		for publisher := range publishers {
			wg.Go(func() {
				for number := range each {
					n.publish("news", fmt.Appendf(nil, "%d %d", publisher, number))
				}
			})
		}
	}
	wg.Wait()
	const total = 2 * publishers * each // from two other nodes
	for _, n := range nodes {
		if err := n.await("last packet", func() bool { return len(n.deliveries) >= total }); err != nil {
			return err
		}
		if err := n.checkNumbers(total); err != nil {
			return err
		}
	}
	return nil
}

// checkNumbers checks that the numbers of each publisher increase by one.
func (n *node) checkNumbers(total int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.deliveries) != total {
		return fmt.Errorf("%d packets were delivered, want %d", len(n.deliveries), total)
	}
	next := map[string]int{}
	for _, d := range n.deliveries {
		var publisher, number int
		if _, err := fmt.Sscan(d.packet, &publisher, &number); err != nil {
			return fmt.Errorf("packet %q: %w", d.packet, err)
		}
		name := fmt.Sprint(d.from, " ", publisher)
		if number != next[name] {
			return fmt.Errorf("packet %d of publisher %s was delivered, want %d", number, name, next[name])
		}
		next[name]++
	}
	return nil
}

func packetSizes(c Cluster) error {
	a, b := c.connect(), c.connect()
	defer closeAll(a, b)
	if err := b.subscribe("news"); err != nil {
		return err
	}
	large := strings.Repeat("\x00\r\n\xff", 1<<18)
	a.publish("news", nil)
	a.publish("news", []byte(large))
	a.publish("news", []byte("\r\n"))
	return b.receives("news", "", large, "\r\n")
}

func closeIsReported(c Cluster) error {
	return endIsReported(c, (*node).close)
}

func crashIsReported(c Cluster) error {
	return endIsReported(c, c.kill)
}

func endIsReported(c Cluster, end func(*node)) error {
	a, b, d := c.connect(), c.connect(), c.connect()
	defer closeAll(b, d)
	if err := errors.Join(b.subscribe("news"), d.subscribe("news")); err != nil {
		return err
	}
	a.publish("news", []byte("hello"))
	if err := errors.Join(b.receives("news", "hello"), d.receives("news", "hello")); err != nil {
		return err
	}
	end(a)
	for _, n := range []*node{b, d} {
		if err := n.await("NodeLeft", func() bool { return len(n.left) > 0 }); err != nil {
			return err
		}
		var left []string
		var from string
		n.locked(func() { left, from = n.left, n.deliveries[0].from })
		if len(left) != 1 || left[0] != from {
			return fmt.Errorf("NodeLeft was called for %q, want [%q]", left, from)
		}
	}
	return nil
}

func nodesAreKnown(c Cluster) error {
	a, b, d := c.connect(), c.connect(), c.connect()
	defer closeAll(a, b, d)
	if err := errors.Join(a.knows(b, d), b.knows(a, d), d.knows(a, b), b.subscribe("news")); err != nil {
		return err
	}
	a.publish("news", []byte("hello"))
	if err := b.receives("news", "hello"); err != nil {
		return err
	}
	if from := b.deliveries[0].from; from != a.Name() {
		return fmt.Errorf("a packet of node %q came from %q", a.Name(), from)
	}
	c.kill(d)
	if err := errors.Join(a.knows(b), b.knows(a)); err != nil {
		return err
	}
	b.close()
	if others, all := b.Nodes(); all || len(others) > 0 {
		return fmt.Errorf("a closed node knows the nodes %q", others)
	}
	return a.knows()
}

// knows waits until the node knows exactly these others.
func (n *node) knows(others ...*node) error {
	var want, got []string
	for _, other := range others {
		want = append(want, other.Name())
	}
	slices.Sort(want)
	err := n.await("nodes", func() (all bool) {
		got, all = n.Nodes()
		slices.Sort(got)
		return all && slices.Equal(got, want)
	})
	if err != nil {
		return fmt.Errorf("the other nodes are %q, want %q: %w", got, want, err)
	}
	return nil
}

func closedNodeDoesNothing(c Cluster) error {
	a, b := c.connect(), c.connect()
	defer closeAll(a, b)
	if err := b.subscribe("news"); err != nil {
		return err
	}
	a.close()
	a.close()
	if a.Publish("news", []byte("after Close")) == nil {
		return errors.New("Publish after Close returned nil")
	}
	a.Subscribe("news")
	a.Unsubscribe("news")
	a.Join("news", "1", "ann")
	a.Leave("news", "1")
	a.Track("news")
	a.Untrack("news")
	b.Track("news")
	return errors.Join(b.receives("news"), b.sees("news"))
}
