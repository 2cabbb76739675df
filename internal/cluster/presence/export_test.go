package presence

import (
	"maps"
	"slices"
	"time"
)

// Kinds of packets.
const (
	KindDigest = kindDigest
	KindChange = kindChange
	KindQuery  = kindQuery
	KindAsk    = kindAsk
	KindState  = kindState
)

// SetLimits makes the bounds of a new node small, so that short tests reach them.
func SetLimits(n *Node, log uint64, window time.Duration, digestBytes, verifyBytes, listed, peers int) {
	n.own.limits = limits{log: log, window: window, digestBytes: digestBytes, verifyBytes: verifyBytes, listed: listed, peers: peers}
}

// Records returns the number of records that the node keeps about its peers' topics.
func Records(n *Node) (records int) {
	for _, p := range n.peers {
		records += len(p.topics)
	}
	return records
}

// Corrupt removes one member of a peer from what the node knows, as a defect would. It reports
// whether there was one.
func Corrupt(n *Node, node, topic, id string) bool {
	p := n.peer(node)
	if p == nil || p.topics[topic] == nil {
		return false
	}
	r := p.topics[topic]
	if _, ok := r.data[id]; !ok {
		return false
	}
	n.set(p, r, change{topic: topic, id: id})
	return true
}

// SetOutput replaces the output of a node.
func SetOutput(n *Node, out Output) { n.cfg.Output = out }

// Members returns the members of a tracked topic on other nodes, sorted by node and ID.
func (n *Node) Members(topic string) (all []Member) {
	for _, p := range n.peers {
		r := p.topics[topic]
		if p.hidden || r == nil {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(r.data)) {
			all = append(all, Member{Node: p.name, ID: id, Data: r.data[id]})
		}
	}
	return all
}

// Repairs returns how often the members of a topic on a peer did not match the checksum of their
// version. Lost packets are no cause of that: it is a defect, which the node repairs.
func (n *Node) Repairs() int { return n.repairs }
