package presence

import (
	"container/list"
	"encoding/binary"
	"maps"
	"slices"
	"time"
)

// limits are the bounds of a node. Tests use smaller ones.
type limits struct {
	// log is the number of changes that an owner keeps, and of topics without members that it
	// remembers.
	log uint64

	// window is how long heartbeats list a changed topic: a peer that misses heartbeats for less
	// needs no other digest.
	window time.Duration

	// digestBytes bounds the changed topics in a heartbeat, and the confirmed ones. verifyBytes
	// bounds the unchanged ones.
	digestBytes, verifyBytes int

	// listed bounds the tracked topics that a request for a digest lists, so that the answer
	// contains their changes too.
	listed int

	// peers is how many other nodes a heartbeat may have as readers before it becomes shorter.
	peers int
}

func defaultLimits() limits {
	return limits{log: 4096, window: 15 * time.Second, digestBytes: 4096, verifyBytes: 512, listed: 64, peers: 16}
}

// minWindow is for some heartbeats that are lost.
const minWindow = 3 * time.Second

// among returns the limits of a heartbeat that is sent to a number of peers. All heartbeats together
// have the square of the nodes as copies, so that each has to be shorter if there are many.
func (l limits) among(peers int) limits {
	if peers <= l.peers {
		return l
	}
	l.window = max(l.window*time.Duration(l.peers)/time.Duration(peers), min(l.window, minWindow))
	l.verifyBytes = l.verifyBytes * l.peers / peers
	return l
}

// An owner is the part of a node that only the node itself changes: its members.
type owner struct {
	limits      limits
	incarnation uint64
	version     uint64 // +1 for each change
	topics      map[string]*ownTopic
	byChange    *list.List  // *ownTopic, the oldest change first
	rotation    []*ownTopic // in the order in which heartbeats verify them
	cursor      int         // in rotation

	log     []change    // version v is at (v-1)%limits.log
	emptied []emptyMark // topics that have lost their last member, the oldest first
	floor   uint64      // the highest last version of a forgotten topic

	confirm    map[string]struct{} // queried topics without members, for the next heartbeat
	heartbeats []heartbeatMark     // within the window, and one before
}

// An ownTopic may have no members: peers must learn that the last one has left.
type ownTopic struct {
	digestEntry
	data    map[string]string // by ID
	changed *list.Element     // in byChange
	slot    int               // in rotation
}

type emptyMark struct {
	topic   string
	version uint64
}

type heartbeatMark struct {
	at      time.Time
	version uint64
}

func newOwner(incarnation uint64) *owner {
	return &owner{
		limits:      defaultLimits(),
		incarnation: incarnation,
		topics:      map[string]*ownTopic{},
		byChange:    list.New(),
		confirm:     map[string]struct{}{},
	}
}

// lastChange returns the version of the last change of a topic. A forgotten topic may have changed
// as late as floor.
func (o *owner) lastChange(topic string) uint64 {
	if t := o.topics[topic]; t != nil {
		return t.last
	}
	return o.floor
}

// apply makes a change and returns it as a packet.
func (o *owner) apply(c change) []byte {
	t := o.topics[c.topic]
	if t == nil {
		t = o.addTopic(c.topic)
	}
	if old, ok := t.data[c.id]; ok {
		t.remove(c.id, old)
		delete(t.data, c.id)
	}
	if c.joined {
		t.add(c.id, c.data)
		t.data[c.id] = c.data
	}
	previous := t.last
	o.version++
	c.version, t.last = o.version, o.version
	o.byChange.MoveToBack(t.changed)
	o.record(c)
	if t.count == 0 {
		o.markEmpty(t)
	}
	packet := appendString(header(kindChange, o.incarnation), c.topic)
	packet = binary.AppendUvarint(packet, c.version)
	packet = binary.AppendUvarint(packet, previous)
	return appendChange(packet, c)
}

func (o *owner) addTopic(name string) *ownTopic {
	t := &ownTopic{
		digestEntry: digestEntry{topic: name, last: o.floor},
		data:        map[string]string{},
		slot:        len(o.rotation),
	}
	t.changed = o.byChange.PushBack(t)
	o.rotation = append(o.rotation, t)
	o.topics[name] = t
	return t
}

func (o *owner) record(c change) {
	if uint64(len(o.log)) < o.limits.log {
		o.log = append(o.log, c)
		return
	}
	o.log[(c.version-1)%o.limits.log] = c
}

// inLog reports whether the log holds all changes after version since.
func (o *owner) inLog(since uint64) bool {
	return since >= o.version-uint64(len(o.log))
}

// markEmpty remembers a topic without members, and forgets the oldest if there are too many. Each
// mark stands for one change, so a forgotten topic's changes are in the log no longer than its mark.
func (o *owner) markEmpty(t *ownTopic) {
	o.emptied = append(o.emptied, emptyMark{topic: t.topic, version: t.last})
	if uint64(len(o.emptied)) <= o.limits.log {
		return
	}
	mark := o.emptied[0]
	o.emptied = o.emptied[1:]
	old := o.topics[mark.topic]
	if old == nil || old.last != mark.version {
		return // it has changed since
	}
	o.floor = mark.version
	o.byChange.Remove(old.changed)
	delete(o.topics, mark.topic)
	end := len(o.rotation) - 1
	o.rotation[old.slot] = o.rotation[end]
	o.rotation[old.slot].slot = old.slot
	o.rotation[end] = nil
	o.rotation = o.rotation[:end]
}

// heartbeat returns a digest of the recent changes. It also lists the topics that were queried and
// have no members, and some other topics in turn, so that peers verify their checksums.
func (o *owner) heartbeat(now time.Time, peers int) []byte {
	l := o.limits.among(peers)
	// Forgotten topics are not listed, so the digest cannot begin before floor.
	d := digest{version: o.version, upto: o.version, base: max(o.windowBase(now, l.window), o.floor)}
	var entries []byte
	for e := o.byChange.Back(); e != nil; e = e.Prev() {
		t := e.Value.(*ownTopic)
		if t.last <= d.base {
			break
		}
		if len(entries) > l.digestBytes {
			d.base = t.last
			break
		}
		entries = appendDigestEntry(entries, t.digestEntry)
	}
	end := len(entries) + l.digestBytes
	for _, topic := range slices.Sorted(maps.Keys(o.confirm)) {
		if len(entries) > end {
			break
		}
		entries = appendDigestEntry(entries, o.entry(topic))
		delete(o.confirm, topic)
	}
	end = len(entries) + l.verifyBytes
	for range o.rotation {
		if len(entries) > end {
			break
		}
		o.cursor = (o.cursor + 1) % len(o.rotation)
		if t := o.rotation[o.cursor]; t.last <= d.base { // the others are listed above
			entries = appendDigestEntry(entries, t.digestEntry)
		}
	}
	return append(appendDigestHead(header(kindDigest, o.incarnation), d), entries...)
}

func (o *owner) entry(topic string) digestEntry {
	if t := o.topics[topic]; t != nil {
		return t.digestEntry
	}
	return digestEntry{topic: topic, last: o.floor}
}

// windowBase records a heartbeat, and returns the version at the last one before the window.
func (o *owner) windowBase(now time.Time, window time.Duration) uint64 {
	o.heartbeats = append(o.heartbeats, heartbeatMark{at: now, version: o.version})
	for len(o.heartbeats) > 1 && now.Sub(o.heartbeats[1].at) >= window {
		o.heartbeats = o.heartbeats[1:]
	}
	if first := o.heartbeats[0]; now.Sub(first.at) >= window {
		return first.version
	}
	return 0
}

// digests returns all changes after version known as digests of at most chunkBytes.
func (o *owner) digests(known uint64, chunkBytes int) (packets [][]byte) {
	d := digest{version: o.version, base: known}
	if known < o.floor {
		d.reset, d.base, known = true, o.floor, 0
	}
	first := o.byChange.Back()
	for e := first; e != nil && e.Value.(*ownTopic).last > known; e = e.Prev() {
		first = e
	}
	var entries []byte
	flush := func() {
		packets = append(packets, append(appendDigestHead(header(kindDigest, o.incarnation), d), entries...))
		d.base, d.reset, entries = d.upto, false, nil
	}
	for e := first; e != nil; e = e.Next() {
		t := e.Value.(*ownTopic)
		if t.last <= known {
			continue // first is the newest topic if nothing has changed
		}
		entry := appendDigestEntry(nil, t.digestEntry)
		if len(entries) > 0 && len(entries)+len(entry)+maxDigestHead > chunkBytes {
			flush()
		}
		entries, d.upto = append(entries, entry...), t.last
	}
	d.upto = o.version
	flush()
	return packets
}

// maxDigestHead bounds the bytes before the entries of a digest.
const maxDigestHead = 1 + 8 + 1 + 3*binary.MaxVarintLen64

// answer returns the packets that answer an ask.
func (o *owner) answer(a ask, chunkBytes int) (packets [][]byte) {
	if a.digest {
		packets = o.digests(a.known, chunkBytes)
		// The digest says that the others are unchanged.
		a.topics = slices.DeleteFunc(a.topics, func(t askTopic) bool {
			return !t.full && o.lastChange(t.topic) <= t.since
		})
	}
	w := stateWriter{head: binary.AppendUvarint(header(kindState, o.incarnation), o.version), limit: chunkBytes, packets: packets}
	changes := o.changesSince(a.topics)
	for _, t := range a.topics {
		c := changes[t.topic]
		own := o.topics[t.topic]
		if t.full || !o.inLog(t.since) || (own != nil && len(c) > len(own.data)) {
			o.writeFull(&w, t.topic)
			continue
		}
		w.changes(t.topic, t.since, c, o.version)
	}
	return w.finish()
}

// changesSince returns the logged changes of topics after the versions that the asker holds.
func (o *owner) changesSince(topics []askTopic) map[string][]change {
	since := map[string]uint64{}
	from := o.version
	for _, t := range topics {
		if !t.full && o.inLog(t.since) {
			since[t.topic] = t.since
			from = min(from, t.since)
		}
	}
	changes := map[string][]change{}
	for v := from + 1; v <= o.version; v++ {
		c := o.log[(v-1)%o.limits.log]
		if s, ok := since[c.topic]; ok && v > s {
			changes[c.topic] = append(changes[c.topic], c)
		}
	}
	return changes
}

func (o *owner) writeFull(w *stateWriter, topic string) {
	if t := o.topics[topic]; t != nil {
		w.full(topic, t.data, t.members)
		return
	}
	w.full(topic, nil, members{})
}
