package cluster

import "encoding/binary"

// A nodeMessage is what one node sends to others:
//
//	kind         1 byte
//	from         length in 1 byte, then the sender's name
//	epoch        4 bytes, big-endian }
//	number       unsigned varint     } kindPacket, kindGap and kindEnd only
//	previousBeat unsigned varint     }
//	packet       the rest
type nodeMessage struct {
	kind   byte
	from   string
	epoch  uint32 // of the number; each sequence of a sender has a greater one than those before
	number uint64 // position in what the sender has published on the channel

	// previousBeat is the number of the sender's last heartbeat when the preceding number of the
	// epoch was assigned, or, for the first number, when the epoch began.
	previousBeat uint64
	packet       []byte
}

// The values are those on the network.
const (
	kindPacket    = 1 + iota
	kindGap       // reports that earlier numbers may be lost; the packet is the first of them, a varint
	kindHeartbeat // the sender is alive; the packet is the number of the heartbeat, a varint, and a payload
	kindLeave     // the sender has closed its node
	kindEnd       // ends the epoch, whose next number it has: the sender forgets the sequence
	kindPresence  // a packet of package presence, not numbered
	kindProbe     // a message of a node to itself; the packet is its number, a varint
)

// numbered reports whether the message has an epoch and a number.
func (m *nodeMessage) numbered() bool {
	return m.kind == kindPacket || m.kind == kindGap || m.kind == kindEnd
}

func (m *nodeMessage) encode() []byte {
	b := make([]byte, 0, 2+len(m.from)+4+2*binary.MaxVarintLen64+len(m.packet))
	b = append(b, m.kind, byte(len(m.from)))
	b = append(b, m.from...)
	if m.numbered() {
		b = binary.BigEndian.AppendUint32(b, m.epoch)
		b = binary.AppendUvarint(b, m.number)
		b = binary.AppendUvarint(b, m.previousBeat)
	}
	return append(b, m.packet...)
}

// decodeMessage returns false if b is not a nodeMessage. The packet shares memory with b.
func decodeMessage(b []byte) (m nodeMessage, ok bool) {
	if len(b) < 2 || len(b) < 2+int(b[1]) || b[0] < kindPacket || b[0] > kindProbe {
		return m, false
	}
	n := 2 + int(b[1])
	m.kind, m.from, m.packet = b[0], string(b[2:n]), b[n:]
	if !m.numbered() {
		return m, true
	}
	if len(m.packet) < 4 {
		return m, false
	}
	m.epoch = binary.BigEndian.Uint32(m.packet)
	m.packet = m.packet[4:]
	return m, m.readUvarint(&m.number) && m.readUvarint(&m.previousBeat)
}

// readUvarint reads a number from the beginning of the packet.
func (m *nodeMessage) readUvarint(to *uint64) bool {
	number, size := binary.Uvarint(m.packet)
	if size <= 0 {
		return false
	}
	*to, m.packet = number, m.packet[size:]
	return true
}
