package brokertest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A remoteMember identifies a member in the view of a node.
type remoteMember struct{ topic, node, id string }

func (n *node) presenceChangedLocked(topic string, m broker.Member, joined bool) {
	id := remoteMember{topic, m.Node, m.ID}
	if _, known := n.members[id]; known == joined {
		n.lost = fmt.Errorf("PresenceChanged(%q, %+v, %v) does not alternate with the call before", topic, m, joined)
	}
	if joined {
		n.members[id] = m.Data
	} else {
		delete(n.members, id)
	}
}

// sees waits until the members of a topic on other nodes are exactly these, each an ID and its
// data, whatever the names of the nodes.
func (n *node) sees(topic string, want ...string) error {
	slices.Sort(want)
	var got []string
	err := n.await("members", func() bool {
		got = n.viewLocked(topic)
		return slices.Equal(got, want)
	})
	if err != nil {
		return fmt.Errorf("the members of %q are %q, want %q: %w", topic, got, want, err)
	}
	return nil
}

func (n *node) viewLocked(topic string) (all []string) {
	for id, data := range n.members {
		if id.topic == topic {
			all = append(all, id.id+"="+data)
		}
	}
	slices.Sort(all)
	return all
}

// trackRoom returns when the node is subscribed.
func (n *node) trackRoom() error {
	if err := n.subscribe("room"); err != nil {
		return err
	}
	n.Track("room")
	return nil
}

func presenceReachesTrackingNodes(c Cluster) error {
	a, b, late, other := c.connect(), c.connect(), c.connect(), c.connect()
	defer closeAll(a, b, late, other)
	if err := errors.Join(b.trackRoom(), other.subscribe("room")); err != nil {
		return err
	}
	a.Join("room", "1", "ann")
	a.Join("room", "2", "")
	a.Join("elsewhere", "1", "ann")
	b.Join("room", "1", "bob") // IDs are unique on a node
	if err := errors.Join(b.sees("room", "1=ann", "2="), late.trackRoom(), late.sees("room", "1=ann", "1=bob", "2=")); err != nil {
		return err
	}
	time.Sleep(c.QuietPeriod)
	var all []remoteMember
	for _, n := range []*node{b, late, other} {
		n.locked(func() { all = slices.AppendSeq(all, maps.Keys(n.members)) })
	}
	if len(all) != 5 { // two, three and none
		return fmt.Errorf("three nodes know the members %+v", all)
	}
	return nil
}

func presenceFollowsChanges(c Cluster) error {
	a, b := c.connect(), c.connect()
	defer closeAll(a, b)
	if err := b.trackRoom(); err != nil {
		return err
	}
	for n := range 100 {
		a.Join("room", strconv.Itoa(n%10), strconv.Itoa(n))
		if n%3 == 0 {
			a.Leave("room", strconv.Itoa(n%10))
		}
	}
	a.Leave("room", "unknown")
	want := []string{"1=91", "2=92", "4=94", "5=95", "7=97", "8=98"}
	if err := b.sees("room", want...); err != nil {
		return err
	}
	b.Untrack("room")
	if err := b.sees("room"); err != nil {
		return fmt.Errorf("after Untrack: %w", err)
	}
	b.Track("room")
	return b.sees("room", want...)
}

func presenceEndsWithNode(c Cluster) error {
	for name, end := range map[string]func(*node){"Close": (*node).close, "a crash": c.kill} {
		if err := c.presenceEnds(end); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (c Cluster) presenceEnds(end func(*node)) error {
	a, b := c.connect(), c.connect()
	defer closeAll(b)
	if err := b.trackRoom(); err != nil {
		return err
	}
	a.Join("room", "1", "ann")
	if err := b.sees("room", "1=ann"); err != nil {
		return err
	}
	end(a)
	return b.sees("room")
}

// presenceConverges changes members on three nodes while one of them is disturbed.
func presenceConverges(c Cluster) error {
	for _, fault := range c.Faults {
		for at := range 3 {
			if err := c.disturbPresence(fault, at); err != nil {
				return fmt.Errorf("%s of node %d: %w", fault.Name, at, err)
			}
		}
	}
	return nil
}

func (c Cluster) disturbPresence(fault Fault, at int) error {
	nodes := []*node{c.connect(), c.connect(), c.connect()}
	defer closeAll(nodes...)
	for i, n := range nodes {
		n.locked(func() { n.tolerant = true })
		if err := n.trackRoom(); err != nil {
			return err
		}
		n.Join("room", "old", strconv.Itoa(i))
	}
	if err := allSee(nodes, map[string][]string{"old": {"0", "1", "2"}}); err != nil {
		return fmt.Errorf("before the fault: %w", err)
	}
	end := fault.Begin(nodes[at].Node)
	for step := range packetsInFault {
		for i, n := range nodes {
			if n.Join("room", "new", strconv.Itoa(10*step+i)); step%2 == 0 {
				n.Leave("room", "new")
			}
		}
		if step == packetsInFault/2 {
			nodes[1].Leave("room", "old")
		}
		time.Sleep(fault.Duration / packetsInFault)
	}
	end()
	last := 10 * (packetsInFault - 1)
	return allSee(nodes, map[string][]string{
		"old": {"0", "", "2"},
		"new": {strconv.Itoa(last), strconv.Itoa(last + 1), strconv.Itoa(last + 2)},
	})
}

// allSee checks the views of all nodes. Want is by ID and node; "" is no member.
func allSee(nodes []*node, want map[string][]string) error {
	for i, n := range nodes {
		var members []string
		for id, data := range want {
			for j := range nodes {
				if j != i && data[j] != "" {
					members = append(members, id+"="+data[j])
				}
			}
		}
		if err := n.sees("room", members...); err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
	}
	return nil
}
