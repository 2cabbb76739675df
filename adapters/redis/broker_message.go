package redis

import "encoding/binary"

// A nodeMessage is what one node sends to others:
//
//	kind         1 byte
//	from         length in 1 byte, then the sender's name
//	epoch        4 bytes, big-endian } kindPacket and kindGap only
//	number       unsigned varint     }
//	packet       the rest
type nodeMessage struct {
	from   string
	kind   byte
	epoch  uint32 // of the number
	number uint64 // position in what the sender has published on the channel
	packet []byte
}

// The values are those on the network.
const (
	kindPacket    = 1 + iota
	kindGap       // reports that earlier numbers may be lost; the packet is the first of them, a varint
	kindHeartbeat // the sender is alive
	kindLeave     // the sender has closed its session
)

// numbered reports whether the message has an epoch and a number.
func (m *nodeMessage) numbered() bool { return m.kind == kindPacket || m.kind == kindGap }

func (m *nodeMessage) encode() []byte {
	b := append([]byte{m.kind, byte(len(m.from))}, m.from...)
	if m.numbered() {
		b = binary.BigEndian.AppendUint32(b, m.epoch)
		b = binary.AppendUvarint(b, m.number)
	}
	return append(b, m.packet...)
}

// decodeMessage returns false if b is not a nodeMessage. The packet shares memory with b.
func decodeMessage(b []byte) (m nodeMessage, ok bool) {
	if len(b) < 2 || len(b) < 2+int(b[1]) || b[0] < kindPacket || b[0] > kindLeave {
		return m, false
	}
	n := 2 + int(b[1])
	m.kind, m.from, b = b[0], string(b[2:n]), b[n:]
	if !m.numbered() {
		return m, true
	}
	if len(b) < 4 {
		return m, false
	}
	m.epoch = binary.BigEndian.Uint32(b)
	number, size := binary.Uvarint(b[4:])
	if size <= 0 {
		return m, false
	}
	m.number, m.packet = number, b[4+size:]
	return m, true
}
