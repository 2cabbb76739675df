package wsframe

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/penstock-go/penstock/errors"
)

// Errors of Reader.Append. After an error, the stream cannot be read any further.
var (
	ErrTooBig    = errors.New("wsframe: the message is too big")
	errMalformed = errors.New("wsframe: not a WebSocket frame, or one that must not be here")
)

// A CloseError is a close frame that was received.
type CloseError struct {
	Code   int // NoStatus if the frame has none
	Reason string
}

// Error implements error.
func (e *CloseError) Error() string {
	return fmt.Sprintf("the connection was closed with %d: %s", e.Code, e.Reason)
}

// A Reader reads messages, masked or not. It is not safe for concurrent use.
type Reader struct {
	src      io.Reader
	maxBytes int
	onPing   func(payload []byte) error
	head     [14]byte // of the current frame, with its key
	control  [MaxControlBytes]byte
}

// NewReader returns a Reader of src, which should be buffered, because the Reader reads each header
// and each payload on its own. Messages have at most maxBytes. onPing is called with the payload of
// each ping, which is valid until it returns; its error ends Append. Pongs are ignored.
func NewReader(src io.Reader, maxBytes int, onPing func(payload []byte) error) *Reader {
	return &Reader{src: src, maxBytes: maxBytes, onPing: onPing}
}

// Append waits for the next message and appends it to dst. It returns io.EOF if the stream ends
// between two messages, io.ErrUnexpectedEOF if it ends inside one, a [*CloseError] for a close
// frame, ErrTooBig, or an error of the stream. With an error, the length of dst is unchanged.
func (r *Reader) Append(dst []byte) (message []byte, op Opcode, err error) {
	message = dst
	for first := true; ; {
		h, err := r.readHeader(first)
		if err != nil {
			return dst, 0, err
		}
		if h.op >= closing {
			if err := r.readControl(h); err != nil {
				return dst, 0, err
			}
			continue
		}
		if first != (h.op != continuation) {
			return dst, 0, errMalformed
		}
		if first {
			op, first = h.op, false
		}
		if h.length > r.maxBytes-(len(message)-len(dst)) {
			return dst, 0, ErrTooBig
		}
		n := len(message)
		message = slices.Grow(message, h.length)[:n+h.length]
		if err := r.readPayload(message[n:], h); err != nil {
			return dst, 0, err
		}
		if h.fin {
			return message, op, nil
		}
	}
}

// A header is the header of a frame (section 5.2).
type header struct {
	op     Opcode
	fin    bool
	length int
	key    []byte // empty if the frame is not masked
}

// readHeader reads a header. first means that the stream may end here.
func (r *Reader) readHeader(first bool) (header, error) {
	b := r.head[:]
	if _, err := io.ReadFull(r.src, b[:1]); err != nil {
		return header{}, unexpected(err, !first)
	}
	if _, err := io.ReadFull(r.src, b[1:2]); err != nil {
		return header{}, unexpected(err, true)
	}
	h := header{op: Opcode(b[0] & opcodeBits), fin: b[0]&finBit != 0, length: int(b[1] &^ maskBit)}
	end := 2
	switch h.length {
	case 126:
		end += 2
	case 127:
		end += 8
	}
	keyBytes := 0
	if b[1]&maskBit != 0 {
		keyBytes = 4
	}
	if _, err := io.ReadFull(r.src, b[2:end+keyBytes]); err != nil {
		return header{}, unexpected(err, true)
	}
	h.key = b[end : end+keyBytes]
	switch h.length {
	case 126:
		h.length = int(binary.BigEndian.Uint16(b[2:]))
	case 127:
		length := binary.BigEndian.Uint64(b[2:])
		if length > math.MaxInt32 {
			return header{}, ErrTooBig
		}
		h.length = int(length)
	}
	switch {
	case b[0]&rsvBits != 0, h.op > Binary && h.op < closing, h.op > Pong:
		return header{}, errMalformed
	case h.op >= closing && (!h.fin || h.length > MaxControlBytes): // section 5.5
		return header{}, errMalformed
	}
	return h, nil
}

// readPayload fills p with the payload of a frame, unmasked (section 5.3).
func (r *Reader) readPayload(p []byte, h header) error {
	if _, err := io.ReadFull(r.src, p); err != nil {
		return unexpected(err, true)
	}
	if len(h.key) > 0 && binary.NativeEndian.Uint32(h.key) != 0 {
		for i := range p {
			p[i] ^= h.key[i%len(h.key)]
		}
	}
	return nil
}

// readControl reads the rest of a control frame.
func (r *Reader) readControl(h header) error {
	p := r.control[:h.length]
	if err := r.readPayload(p, h); err != nil {
		return err
	}
	switch {
	case h.op == Ping:
		return r.onPing(p)
	case h.op == Pong:
		return nil
	case len(p) == 0:
		return &CloseError{Code: NoStatus}
	case len(p) == 1:
		return errMalformed
	}
	return &CloseError{Code: int(binary.BigEndian.Uint16(p)), Reason: string(p[2:])}
}

// unexpected returns the error of a stream. inside means that the stream must not end here.
func unexpected(err error, inside bool) error {
	if inside && err == io.EOF { //nolint:errorlint // what io.ReadFull returns
		return io.ErrUnexpectedEOF
	}
	return err
}
