package presence

import (
	"encoding/binary"
	"maps"
	"slices"
)

// A stateWriter encodes sections into packets of at most limit bytes. A packet is longer only if
// one member does not fit into an empty one.
type stateWriter struct {
	head    []byte // of each packet
	limit   int
	packet  []byte // being written; nil between packets
	fresh   bool   // the packet has no entry and no other section
	packets [][]byte
}

// maxTrailer bounds what ends a section.
const maxTrailer = 2 + binary.MaxVarintLen64 + 8

// begin starts a section, in a new packet if this one has no space for the section's head.
func (w *stateWriter) begin(section byte, topic string, number uint64) {
	if w.packet != nil && len(w.packet)+1+len(topic)+2*binary.MaxVarintLen64+maxTrailer > w.limit {
		w.flush()
	}
	w.fresh = w.packet == nil
	if w.fresh {
		w.packet = slices.Clone(w.head)
	}
	w.packet = appendString(append(w.packet, section), topic)
	w.packet = binary.AppendUvarint(w.packet, number)
}

func (w *stateWriter) flush() {
	w.packets = append(w.packets, w.packet)
	w.packet = nil
}

// fits reports whether the section can continue with an entry in this packet.
func (w *stateWriter) fits(entry []byte) bool {
	return w.fresh || len(w.packet)+len(entry)+maxTrailer <= w.limit
}

func (w *stateWriter) entry(entry []byte) {
	w.packet = append(w.packet, entry...)
	w.fresh = false
}

func (w *stateWriter) finish() [][]byte {
	if w.packet != nil {
		w.flush()
	}
	return w.packets
}

// changes writes sections that lead from version since to version upto. Each section can be
// applied alone, after the ones before.
func (w *stateWriter) changes(topic string, since uint64, changes []change, upto uint64) {
	w.begin(sectionChanges, topic, since)
	last := since
	for _, c := range changes {
		entry := binary.AppendUvarint(appendChange(nil, c), c.version)
		if !w.fits(entry) {
			w.packet = binary.AppendUvarint(append(w.packet, opEnd), last)
			w.flush()
			w.begin(sectionChanges, topic, last)
		}
		w.entry(entry)
		last = c.version
	}
	w.packet = binary.AppendUvarint(append(w.packet, opEnd), upto)
}

// full writes all members of a topic. Its sections have consecutive numbers, and the last one ends
// with the count and checksum of all members.
func (w *stateWriter) full(topic string, data map[string]string, all members) {
	part := uint64(0)
	w.begin(sectionFull, topic, part)
	for _, id := range slices.Sorted(maps.Keys(data)) {
		entry := appendChange(nil, change{id: id, data: data[id], joined: true})
		if !w.fits(entry) {
			w.packet = append(w.packet, opEnd, 0)
			w.flush()
			part++
			w.begin(sectionFull, topic, part)
		}
		w.entry(entry)
	}
	w.packet = binary.AppendUvarint(append(w.packet, opEnd, 1), all.count)
	w.packet = binary.BigEndian.AppendUint64(w.packet, all.checksum)
}

// A section is one part of a state packet.
type section struct {
	topic   string
	full    bool
	changes []change // of a full state, members that have joined

	from, upto uint64 // changes only: the versions before and after

	part uint64  // full states only
	last bool    // full states only
	all  members // of the last part
}

// section reads the next section. It returns false if the packet is malformed.
func (r *reader) section() (s section, ok bool) {
	kind := r.byte()
	s.topic = r.string()
	s.full = kind == sectionFull
	number := r.uvarint()
	for {
		c, ok := r.change()
		if !ok {
			break
		}
		if !s.full {
			c.version = r.uvarint()
		}
		s.changes = append(s.changes, c)
	}
	switch kind {
	case sectionChanges:
		s.from, s.upto = number, r.uvarint()
	case sectionFull:
		s.part = number
		if s.last = r.byte() == 1; s.last {
			s.all = members{count: r.uvarint(), checksum: r.uint64()}
		}
	default:
		r.fail()
	}
	return s, !r.bad
}

// An assembly collects the parts of a full state. The parts of a state are sent in order, one
// topic after the other, so a peer has at most one.
type assembly struct {
	topic   string
	version uint64
	parts   uint64 // received
	bytes   int
	members
	data map[string]string
}

// maxAssemblyBytes bounds the members of one topic on one node while they are collected.
const maxAssemblyBytes = 64 << 20

// add adds a part, and reports whether the state is complete. A part after a lost one is ignored.
// Parts of two answers may be mixed if packets are lost and duplicated; the count and the checksum
// detect that.
func (a *assembly) add(s section, version uint64) (complete bool) {
	if s.part == 0 {
		*a = assembly{topic: s.topic, version: version, data: map[string]string{}}
	}
	if a.topic != s.topic || a.version != version || a.parts != s.part || a.data == nil {
		return false
	}
	a.parts++
	for _, c := range s.changes {
		if _, ok := a.data[c.id]; ok {
			*a = assembly{}
			return false
		}
		a.bytes += len(c.id) + len(c.data)
		a.data[c.id] = c.data
		a.members.add(c.id, c.data)
	}
	if a.bytes > maxAssemblyBytes {
		*a = assembly{}
		return false
	}
	return s.last && a.members == s.all
}
