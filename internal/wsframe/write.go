package wsframe

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// A Role is the end of a connection that writes.
type Role byte

// The roles. A client masks its frames (section 5.3), with a key of zeros: the payload is not
// changed.
const (
	Client Role = iota
	Server
)

// An Opcode is the kind of a message or of a control frame (section 5.2).
type Opcode byte

// The opcodes that a caller writes and receives.
const (
	Text   Opcode = 0x1
	Binary Opcode = 0x2
	Ping   Opcode = 0x9
	Pong   Opcode = 0xa

	continuation Opcode = 0x0
	closing      Opcode = 0x8
)

// Bits of the first two bytes of a frame (section 5.2).
const (
	finBit     = 0x80
	rsvBits    = 0x70
	opcodeBits = 0x0f
	maskBit    = 0x80
)

// MaxControlBytes is the largest payload of a control frame (section 5.5).
const MaxControlBytes = 125

// NoStatus is the code of a close frame without one (section 7.4.1).
const NoStatus = 1005

// AppendFrame appends a whole message, or a control frame, to dst. It panics if the payload of a
// control frame has more than MaxControlBytes.
func AppendFrame(dst []byte, role Role, op Opcode, payload []byte) []byte {
	if op >= closing && len(payload) > MaxControlBytes {
		panic(fmt.Sprintf("wsframe: a control frame of %d bytes; it must have at most %d", len(payload), MaxControlBytes))
	}
	mask := byte(0)
	if role == Client {
		mask = maskBit
	}
	dst = append(dst, finBit|byte(op))
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, mask|byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, mask|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, mask|127), uint64(n))
	}
	if role == Client {
		dst = append(dst, 0, 0, 0, 0)
	}
	return append(dst, payload...)
}

// AppendClose appends a close frame (section 5.5.1) to dst. A reason that is too long is cut
// between two characters. With the code NoStatus, the frame has neither code nor reason.
func AppendClose(dst []byte, role Role, code int, reason string) []byte {
	if code == NoStatus {
		return AppendFrame(dst, role, closing, nil)
	}
	if n := MaxControlBytes - 2; len(reason) > n {
		for n > 0 && !utf8.RuneStart(reason[n]) {
			n--
		}
		reason = reason[:n]
	}
	var payload [MaxControlBytes]byte
	binary.BigEndian.PutUint16(payload[:], uint16(code)) //nolint:gosec // a close code has 16 bits
	return AppendFrame(dst, role, closing, payload[:2+copy(payload[2:], reason)])
}
