package wsconn

import (
	"encoding/binary"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// An inspector watches the frames on their way to the library, for what the
// library lets pass: lengths in more bytes than they need, and frames that bring
// no data and cost work. Where compression was agreed on, it takes the mark of it
// off: the library would take half a compressed message for a whole one, and what
// follows a compressed stream in its frame for frames.
//
// It is small, because every connection has one.
type inspector struct {
	header   [14]byte
	have     uint8  // bytes of the header
	controls uint8  // control frames since
	payload  uint64 // bytes of the payload that are still to come

	since time.Time // when controls were first counted
	empty int32     // data frames without data, since the last with some

	inflates bool   // compression was agreed on
	ahead    uint8  // messages ahead of the library; its buffer has no room for more than 21
	deflated uint32 // a bit for each of them, the next one lowest
}

const (
	maxEmptyFrames   = 1 << 14
	maxControlFrames = 100 // in controlWindow
	controlWindow    = 10 * time.Second
)

var (
	errLength = errors.New("the length of a frame takes more bytes than it needs")
	errFlood  = errors.New("too many frames without data")
)

// pass returns how many bytes the library may see, and what is wrong with the
// frame behind them.
func (x *inspector) pass(p []byte) (int, error) {
	for i := 0; i < len(p); {
		if x.payload > 0 {
			n := min(x.payload, uint64(len(p)-i))
			x.payload -= n
			i += int(n)
			continue
		}
		if x.have == 0 && x.inflates {
			p[i] = x.unmark(p[i])
		}
		x.header[x.have] = p[i]
		x.have++
		if x.have >= 2 && int(x.have) == x.headerBytes() {
			if err := x.begin(); err != nil {
				return i - min(i, int(x.have)-1), err
			}
			x.have = 0
		}
		i++
	}
	return len(p), nil
}

// unmark looks at the first byte of a frame. If it begins a message, it remembers
// whether that is compressed, which is what RSV1 says there (RFC 7692, section
// 6). Elsewhere the bit is the library's to refuse.
func (x *inspector) unmark(first byte) byte {
	opcode := first & 0x0f
	if opcode != finText&0x0f && opcode != finBinary&0x0f {
		return first
	}
	if first&rsv1 != 0 {
		x.deflated |= 1 << x.ahead
	}
	x.ahead++
	return first &^ rsv1
}

// nextIsDeflated reports whether the message that the library has just begun is
// compressed.
func (x *inspector) nextIsDeflated() bool {
	if x.ahead == 0 {
		return false
	}
	is := x.deflated&1 != 0
	x.deflated >>= 1
	x.ahead--
	return is
}

func (x *inspector) headerBytes() int {
	n := 2
	if x.header[1]&maskBit != 0 {
		n += keyBytes
	}
	switch x.header[1] &^ maskBit {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	return n
}

// begin looks at a whole header.
func (x *inspector) begin() error {
	x.payload = uint64(x.header[1] &^ maskBit)
	switch x.payload {
	case 126:
		if x.payload = uint64(binary.BigEndian.Uint16(x.header[2:])); x.payload < 126 {
			return errLength
		}
	case 127:
		if x.payload = binary.BigEndian.Uint64(x.header[2:]); x.payload < 1<<16 {
			return errLength
		}
	}
	if isControl := x.header[0]&0x08 != 0; isControl {
		return x.countControl()
	}
	if x.payload > 0 {
		x.empty = 0
		return nil
	}
	if x.empty++; x.empty > maxEmptyFrames {
		return errFlood
	}
	return nil
}

func (x *inspector) countControl() error {
	if now := time.Now(); x.controls == 0 || now.Sub(x.since) > controlWindow {
		x.controls, x.since = 0, now
	}
	if x.controls++; x.controls > maxControlFrames {
		return errFlood
	}
	return nil
}
