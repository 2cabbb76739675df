package presence

import "encoding/binary"

// The first byte of a packet is its kind. A node ignores unknown kinds, which later versions may
// send.
const (
	kindDigest = 1 + iota // what has changed; also the payload of a heartbeat
	kindChange            // one member has joined or left
	kindQuery             // asks every node for its members in some topics
	kindAsk               // asks one node for a digest, for topics, or both
	kindState             // changes or full states of topics
)

// The values of an entry's first byte in a change and in a section of a state packet.
const (
	opEnd = iota // no more entries in the section
	opJoin
	opLeave
)

// The values of a section's first byte in a state packet.
const (
	sectionChanges = 1 + iota
	sectionFull
)

// digestReset marks a digest whose base is the owner's floor: a receiver that knows less cannot
// trust what it holds, because the owner has forgotten some topics without members.
const digestReset = 1

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// header begins a packet of an owner.
func header(kind byte, incarnation uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kind}, incarnation)
}

// A reader decodes a packet. After a read beyond the end it is bad, and reads return zero values.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) fail() {
	r.rest, r.bad = nil, true
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail()
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) uint64() uint64 {
	if len(r.rest) < 8 {
		r.fail()
		return 0
	}
	v := binary.BigEndian.Uint64(r.rest)
	r.rest = r.rest[8:]
	return v
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// string copies, because packets are valid only during the call that passes them.
func (r *reader) string() string {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.fail()
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

// A change is one member that joined or left.
type change struct {
	version uint64
	topic   string
	id      string
	data    string
	joined  bool
}

func appendChange(b []byte, c change) []byte {
	if !c.joined {
		return appendString(append(b, opLeave), c.id)
	}
	return appendString(appendString(append(b, opJoin), c.id), c.data)
}

// change reads what appendChange writes. It returns false at opEnd and if the packet is bad.
func (r *reader) change() (c change, ok bool) {
	switch r.byte() {
	case opJoin:
		c = change{id: r.string(), data: r.string(), joined: true}
	case opLeave:
		c = change{id: r.string()}
	case opEnd:
		return c, false
	default:
		r.fail()
	}
	return c, !r.bad
}

// A digest says which topics of an owner have changed in the versions (base, upto]. Its entries
// hold for version.
type digest struct {
	version uint64
	upto    uint64
	base    uint64
	reset   bool
	entries []digestEntry
}

// A digestEntry describes the members of one topic on the owner.
type digestEntry struct {
	topic string
	last  uint64 // version of the last change
	members
}

// members identifies a set of members. Two nodes with equal values hold the same members.
type members struct {
	count    uint64
	checksum uint64 // 0 if count is 0
}

func (m *members) add(id, data string) {
	m.count++
	m.checksum += memberHash(id, data)
}

func (m *members) remove(id, data string) {
	m.count--
	m.checksum -= memberHash(id, data)
}

// memberHash is FNV-1a over id, its length and data, with the finalizer of MurmurHash3, so that
// sums of hashes of similar members differ.
func memberHash(id, data string) uint64 {
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * prime
	}
	h = (h ^ uint64(len(id)) ^ 0x100) * prime
	for i := range len(data) {
		h = (h ^ uint64(data[i])) * prime
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

func appendDigestHead(b []byte, d digest) []byte {
	var flags byte
	if d.reset {
		flags = digestReset
	}
	b = binary.AppendUvarint(append(b, flags), d.version)
	b = binary.AppendUvarint(b, d.upto)
	return binary.AppendUvarint(b, d.base)
}

func appendDigestEntry(b []byte, e digestEntry) []byte {
	b = binary.AppendUvarint(appendString(b, e.topic), e.last)
	b = binary.AppendUvarint(b, e.count)
	if e.count > 0 {
		b = binary.BigEndian.AppendUint64(b, e.checksum)
	}
	return b
}

// digest reads the rest of a digest packet. It returns false if the packet is malformed.
func (r *reader) digest() (d digest, ok bool) {
	d.reset = r.byte()&digestReset != 0
	d.version, d.upto, d.base = r.uvarint(), r.uvarint(), r.uvarint()
	for len(r.rest) > 0 {
		e := digestEntry{topic: r.string(), last: r.uvarint()}
		if e.count = r.uvarint(); e.count > 0 {
			e.checksum = r.uint64()
		}
		if e.last > d.version {
			r.fail()
		}
		d.entries = append(d.entries, e)
	}
	return d, !r.bad && d.upto <= d.version && d.base <= d.version
}

// An ask is a request to one owner.
type ask struct {
	digest bool
	known  uint64 // the digest begins after this version
	topics []askTopic
}

type askTopic struct {
	topic string
	since uint64 // the version that the asker holds
	full  bool   // the asker holds no version
}

// appendAskTopic encodes since+1, and 0 for a full state.
func appendAskTopic(b []byte, t askTopic) []byte {
	b = appendString(b, t.topic)
	if t.full {
		return append(b, 0)
	}
	return binary.AppendUvarint(b, t.since+1)
}

// ask reads the rest of an ask packet. A topic that is listed twice counts once, or one short
// packet could request the same state many times.
func (r *reader) ask() (a ask, ok bool) {
	if known := r.uvarint(); known > 0 {
		a.digest, a.known = true, known-1
	}
	listed := map[string]struct{}{}
	for len(r.rest) > 0 {
		t := askTopic{topic: r.string()}
		since := r.uvarint()
		t.since, t.full = since-1, since == 0
		if _, ok := listed[t.topic]; !ok {
			listed[t.topic] = struct{}{}
			a.topics = append(a.topics, t)
		}
	}
	return a, !r.bad
}
