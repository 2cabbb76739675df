package presence

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"
)

// A peer is what this node knows about another node.
type peer struct {
	name        string
	incarnation uint64

	// For every tracked topic, the changes up to version known are applied, or the topic is
	// behind.
	known  uint64
	target uint64 // the highest version in the owner's digests

	topics map[string]*replica // those with members, and those that need a record
	behind map[string]*replica // those that miss a change

	hidden bool      // no member was reported as joined
	gone   bool      // failed or left
	left   bool      // has left the cluster
	goneAt time.Time // when it failed or left

	askAt    time.Time // of the next request; 0 if nothing is missing
	attempts int       // requests since the last progress
	assembly assembly
	span     span
}

// A span is the part of the changes after known that the received parts of a digest cover.
type span struct {
	version uint64 // of the digest
	upto    uint64
}

// A replica is a topic of a peer. A tracked topic without a replica has no members, and is complete
// up to the peer's known version.
type replica struct {
	members
	data     map[string]string // by ID
	complete uint64            // all changes up to this version are applied
	need     uint64            // the topic is behind until it is complete to this version
	unknown  bool              // data does not belong to a version: only a full state helps
}

func (r *replica) behind() bool { return r.unknown || r.complete < r.need }

// reset forgets everything about a peer.
func (p *peer) reset(incarnation uint64) {
	*p = peer{
		name:        p.name,
		incarnation: incarnation,
		topics:      map[string]*replica{},
		behind:      map[string]*replica{},
	}
}

// complete returns the version up to which the changes of a tracked topic are applied.
func (p *peer) complete(topic string) uint64 {
	r := p.topics[topic]
	switch {
	case r == nil:
		return p.known
	case r.behind():
		return r.complete
	}
	return max(r.complete, p.known)
}

// replica returns the record of a topic, which it creates if necessary.
func (p *peer) replica(topic string) *replica {
	r := p.topics[topic]
	if r == nil {
		r = &replica{data: map[string]string{}, complete: p.known}
		p.topics[topic] = r
	}
	return r
}

// missing records that a topic is behind version need.
func (p *peer) missing(topic string, need uint64) {
	complete := p.complete(topic)
	r := p.replica(topic)
	r.complete, r.need = complete, max(r.need, need)
	p.behind[topic] = r
}

// expect records that nothing is known about a topic, and when to ask for it.
func (p *peer) expect(topic string, at time.Time) {
	if p.left {
		return
	}
	r := p.replica(topic)
	// Digests up to known have not considered the topic: an older state does not suffice.
	r.need, r.unknown = p.known, true
	p.behind[topic] = r
	if p.askAt.IsZero() {
		p.askAt = at
	}
}

// upToDate reports whether this node knows all members of the peer in its topics.
func (p *peer) upToDate() bool { return p.known >= p.target && len(p.behind) == 0 }

// set applies a change of one member.
func (n *Node) set(p *peer, r *replica, c change) {
	old, ok := r.data[c.id]
	if ok && c.joined && old == c.data {
		return
	}
	if ok {
		delete(r.data, c.id)
		r.remove(c.id, old)
		n.report(p, c.topic, c.id, old, false)
	}
	if c.joined {
		r.data[c.id] = c.data
		r.add(c.id, c.data)
		n.report(p, c.topic, c.id, c.data, true)
	}
}

func (n *Node) report(p *peer, topic, id, data string, joined bool) {
	if !p.hidden {
		n.cfg.Output.Changed(Event{Topic: topic, Member: Member{Node: p.name, ID: id, Data: data}, Joined: joined})
	}
}

// replace installs the full state of a topic.
func (n *Node) replace(p *peer, topic string, data map[string]string, version uint64) {
	r := p.replica(topic)
	for _, id := range slices.Sorted(maps.Keys(r.data)) {
		if _, ok := data[id]; !ok {
			n.set(p, r, change{topic: topic, id: id})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(data)) {
		n.set(p, r, change{topic: topic, id: id, data: data[id], joined: true})
	}
	r.complete, r.unknown = version, false
}

// hide reports that all members of a peer have left.
func (n *Node) hide(p *peer) {
	n.reportAll(p, false)
	p.hidden = true
}

func (n *Node) reportAll(p *peer, joined bool) {
	if p.hidden {
		return
	}
	for _, topic := range slices.Sorted(maps.Keys(p.topics)) {
		r := p.topics[topic]
		for _, id := range slices.Sorted(maps.Keys(r.data)) {
			n.report(p, topic, id, r.data[id], joined)
		}
	}
}

// drop forgets a topic that is no longer tracked.
func (n *Node) drop(p *peer, topic string) {
	if r := p.topics[topic]; r != nil {
		n.replace(p, topic, nil, 0)
		delete(p.topics, topic)
		delete(p.behind, topic)
	}
	if p.upToDate() {
		n.upToDate(p)
	}
}

// settle removes the records that are not needed any more, and schedules a request if something is
// missing.
func (n *Node) settle(p *peer, now time.Time) {
	for topic, r := range p.behind {
		if !r.behind() {
			delete(p.behind, topic)
			p.tidy(topic)
		}
	}
	if p.upToDate() {
		n.upToDate(p)
		return
	}
	if p.askAt.IsZero() {
		n.schedule(p, now)
	}
}

// upToDate shows a peer that has returned and ends its requests.
func (n *Node) upToDate(p *peer) {
	p.askAt, p.attempts, p.assembly = time.Time{}, 0, assembly{}
	if p.hidden && !p.gone {
		p.hidden = false
		n.reportAll(p, true)
	}
}

// tidy removes the record of a topic that equals no record.
func (p *peer) tidy(topic string) {
	if r := p.topics[topic]; r != nil && r.count == 0 && !r.behind() && r.complete <= p.known {
		delete(p.topics, topic)
	}
}

// schedule sets the time of the next request. Several causes within this time share a request.
func (n *Node) schedule(p *peer, now time.Time) {
	p.attempts = 0
	p.askAt = now.Add(n.jitter())
}

// ask requests what is missing from a peer, and sets the time of the next attempt.
func (n *Node) ask(p *peer, now time.Time) {
	if p.upToDate() {
		n.upToDate(p)
		return
	}
	packet := header(kindAsk, p.incarnation)
	topics := slices.Sorted(maps.Keys(p.behind))
	if p.known < p.target {
		packet = binary.AppendUvarint(packet, p.known+1)
		if len(n.tracked) <= n.own.limits.listed {
			topics = slices.Sorted(maps.Keys(n.tracked))
		}
	} else {
		packet = append(packet, 0)
	}
	empty := len(packet)
	for _, topic := range topics {
		t := appendAskTopic(nil, n.askTopic(p, topic))
		if len(packet) > empty && len(packet)+len(t) > n.cfg.ChunkBytes {
			break // the next request lists the others
		}
		packet = append(packet, t...)
	}
	n.cfg.Output.Send(p.name, packet)
	p.askAt = now.Add(min(retryMin<<min(p.attempts, 8), retryMax) + n.jitter())
	p.attempts++
}

func (n *Node) askTopic(p *peer, topic string) askTopic {
	r := p.behind[topic]
	return askTopic{topic: topic, since: p.complete(topic), full: r != nil && r.unknown}
}
