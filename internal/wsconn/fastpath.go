package wsconn

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/penstock-go/penstock/internal/netpoll"
)

// Most messages are one frame that has arrived completely. Such a frame is copied from the
// read buffer in one step. Any other frame goes through frameReader.

// wholeMessage consumes a message that is one complete unread frame, if there is one. The message has no Buffer
// otherwise.
func (c *Conn) wholeMessage() (Message, error) {
	header, n := wholeFrame(c.sock.unread())
	if header == 0 || int64(n) > c.opts.MaxMessageBytes {
		return Message{}, nil
	}
	m := Message{Buffer: netpoll.NewBuffer(netpoll.ClassFor(n)), Size: int64(n), At: c.sock.chunk.At}
	m.Binary = c.sock.unread()[0] == finBit|opBinary
	m.Bytes = m.Bytes[:n]
	frame := c.sock.unread()[:header+n]
	ascii := mask(m.Bytes, frame[header:], [keyBytes]byte(frame[header-keyBytes:]), 0)
	c.sock.skip(len(frame))
	if !ascii && !m.Binary && !utf8.Valid(m.Bytes) {
		m.Release()
		return Message{}, errInvalidUTF8
	}
	return m, nil
}

// wholeFrame returns the lengths of the header and of the payload if p begins with a
// complete, valid frame of a client (RFC 6455, section 5.2) that contains an uncompressed
// message in one frame. Otherwise it returns zeros.
func wholeFrame(p []byte) (header, n int) {
	if len(p) < 2+keyBytes || p[0] != finBit|opText && p[0] != finBit|opBinary || p[1]&maskBit == 0 {
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
