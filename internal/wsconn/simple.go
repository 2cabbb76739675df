package wsconn

import "encoding/binary"

// Most messages come as one frame that has arrived as a whole. Between messages,
// such a frame is taken from what was read, without a detour through the library,
// which costs as much as everything else that is done to it. Any other frame is
// the library's.

const (
	finBinary = 0x82
	maskBit   = 0x80
	keyBytes  = 4
)

// simpleMessage takes a simple frame, if there is one ahead.
func (c *Conn) simpleMessage() (Message, bool) {
	header, n := simpleFrame(c.sock.unread)
	if header == 0 || int64(n) > c.opts.MaxMessageBytes {
		return Message{}, false
	}
	m := Message{Buffer: newBuffer(classFor(n)), Size: int64(n)}
	m.Bytes = m.Bytes[:n]
	frame := c.sock.unread[:header+n]
	unmask(m.Bytes, frame[header:], [keyBytes]byte(frame[header-keyBytes:]))
	c.sock.skip(len(frame))
	return m, true
}

// simpleFrame returns the length of the header and of the payload if p begins
// with a whole data frame that is a message of its own and as RFC 6455, section
// 5.2 wants it from a client: no extension, masked, its length in the fewest
// bytes. Otherwise it returns zeros.
func simpleFrame(p []byte) (header, n int) {
	if len(p) < 2+keyBytes || p[0] != finText && p[0] != finBinary || p[1]&maskBit == 0 {
		return 0, 0
	}
	header, n = 2+keyBytes, int(p[1]&^maskBit)
	switch n {
	case 126:
		header += 2
		if n = int(binary.BigEndian.Uint16(p[2:])); n < 126 {
			return 0, 0
		}
	case 127: // more than is read at once
		return 0, 0
	}
	if len(p) < header+n {
		return 0, 0
	}
	return header, n
}

// simpleControl returns the length of the payload if p begins with a whole ping or pong as RFC
// 6455, section 5.5 wants it from a client. Otherwise it returns -1.
func simpleControl(p []byte) int {
	if len(p) < 2+keyBytes || p[0] != finPing && p[0] != finPong || p[1]&maskBit == 0 {
		return -1
	}
	if n := int(p[1] &^ maskBit); n <= maxControlBytes && len(p) >= 2+keyBytes+n {
		return n
	}
	return -1
}

// unmask is RFC 6455, section 5.3.
func unmask(dst, src []byte, key [keyBytes]byte) {
	word := uint64(binary.LittleEndian.Uint32(key[:]))
	word |= word << 32
	i := 0
	for ; i+8 <= len(src); i += 8 {
		binary.LittleEndian.PutUint64(dst[i:], binary.LittleEndian.Uint64(src[i:])^word)
	}
	for ; i < len(src); i++ {
		dst[i] = src[i] ^ key[i%keyBytes]
	}
}
