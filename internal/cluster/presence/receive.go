package presence

import "time"

// receiveDigest compares a digest with what this node knows. It reports whether known has advanced.
func (n *Node) receiveDigest(p *peer, d digest) (progress bool) {
	p.target = max(p.target, d.version)
	if d.reset && p.known < d.base {
		p.distrust(d.base)
	}
	for _, e := range d.entries {
		if _, ok := n.tracked[e.topic]; ok {
			n.compare(p, e, d.version)
		}
	}
	if p.extend(d) {
		p.known, progress = d.version, true
	}
	for _, e := range d.entries {
		p.tidy(e.topic)
	}
	return progress
}

// extend adds a digest to the span, and reports whether the span covers all changes after known. Known
// must not advance before: a topic is listed at its last change only, so a part of a digest does
// not list all topics that have changed in its versions.
func (p *peer) extend(d digest) bool {
	switch {
	case d.version <= p.known:
		return false
	case d.version == p.span.version && d.base <= p.span.upto:
		p.span.upto = max(p.span.upto, d.upto)
	case d.reset || d.base <= p.known:
		p.span = span{version: d.version, upto: d.upto}
	default:
		return false
	}
	return p.span.upto == d.version
}

// distrust marks the topics whose changes the owner may have forgotten: those that are not
// complete to its floor.
func (p *peer) distrust(floor uint64) {
	for topic, r := range p.topics {
		if complete := p.complete(topic); r.behind() || complete < floor {
			r.complete, r.need, r.unknown = complete, max(r.need, complete), true
			p.behind[topic] = r
		}
	}
}

// compare compares a topic with its digest entry, which is valid for version.
func (n *Node) compare(p *peer, e digestEntry, version uint64) {
	complete := p.complete(e.topic)
	r := p.topics[e.topic]
	unknown := r != nil && r.unknown
	if complete > version && !unknown {
		return // it has changed after the digest
	}
	var held members
	if r != nil {
		held = r.members
	}
	switch {
	case held == e.members:
		if r != nil {
			// Changes between complete and version add up to nothing.
			r.complete, r.unknown = version, false
		}
	case complete < e.last || unknown:
		if e.count == 0 {
			n.replace(p, e.topic, nil, version)
			return
		}
		p.missing(e.topic, e.last)
	default:
		// Both have the same version. Whatever the cause, only a full state repairs it.
		n.repairs++
		p.missing(e.topic, version)
		p.topics[e.topic].unknown = true
	}
}

// tidyAll removes the records that parts of a digest have made unnecessary.
func (p *peer) tidyAll() {
	for topic := range p.topics {
		p.tidy(topic)
	}
}

// receiveChange applies a change that follows what is known.
func (n *Node) receiveChange(p *peer, r *reader) {
	topic, version, previous := r.string(), r.uvarint(), r.uvarint()
	c, ok := r.change()
	if !ok || previous >= version {
		return
	}
	if _, ok := n.tracked[topic]; !ok {
		return
	}
	c.topic, c.version = topic, version
	complete := p.complete(topic)
	if version <= complete {
		return // a duplicate
	}
	if rec := p.topics[topic]; previous > complete || (rec != nil && rec.unknown) {
		p.missing(topic, version)
		return
	}
	rec := p.replica(topic)
	n.set(p, rec, c)
	rec.complete = version
}

// receiveState applies an answer.
func (n *Node) receiveState(p *peer, r *reader, now time.Time) {
	version := r.uvarint()
	progress := false
	for len(r.rest) > 0 {
		s, ok := r.section()
		if !ok {
			return
		}
		if _, ok := n.tracked[s.topic]; !ok {
			continue
		}
		if s.full {
			progress = n.receiveFull(p, s, version) || progress
		} else {
			progress = n.receiveChanges(p, s) || progress
		}
	}
	if progress && !p.askAt.IsZero() {
		// The rest of the answer is on its way.
		p.attempts = 0
		if wait := now.Add(retryMin); p.askAt.Before(wait) {
			p.askAt = wait
		}
	}
}

// receiveFull collects parts of a full state, and installs it when it is complete.
func (n *Node) receiveFull(p *peer, s section, version uint64) (progress bool) {
	if !p.assembly.add(s, version) {
		return p.assembly.topic == s.topic
	}
	data := p.assembly.data
	p.assembly = assembly{}
	r := p.topics[s.topic]
	if r != nil && r.unknown {
		if version < r.need {
			return false
		}
	} else if version <= p.complete(s.topic) {
		return false
	}
	n.replace(p, s.topic, data, version)
	return true
}

// receiveChanges applies changes that follow what is known.
func (n *Node) receiveChanges(p *peer, s section) (progress bool) {
	complete := p.complete(s.topic)
	if r := p.topics[s.topic]; s.from > complete || s.upto <= complete || (r != nil && r.unknown) {
		return false
	}
	r := p.replica(s.topic)
	for _, c := range s.changes {
		if c.version > complete && c.version <= s.upto {
			c.topic = s.topic
			n.set(p, r, c)
		}
	}
	r.complete = s.upto
	return true
}
