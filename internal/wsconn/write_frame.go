package wsconn

import (
	"encoding/binary"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// First bytes of the frames that a server sends (RFC 6455, section 5.2).
const (
	finText   = finBit | opText
	finBinary = finBit | opBinary
	finClose  = finBit | opClose
	finPing   = finBit | opPing
	finPong   = finBit | opPong
)

// maxHeaderBytes is the longest header of a server's frame.
const maxHeaderBytes = 10

// A Frame is an outgoing message: write its text or its bytes, seal it, and queue it on
// any number of connections. Each [Conn.Queue] takes one reference.
type Frame struct {
	At time.Time // when it was created; the zero Time if that is unknown

	buf   []byte // maxHeaderBytes reserved for the header, then the message
	start int    // where the header begins, once sealed
	refs  atomic.Int32

	deflated deflatedFrame

	droppable bool
	policy    SlowConsumerPolicy // of a droppable frame
	key       string             // the conflation key, or ""
}

const maxPooledFrameBytes = 16 << 10

var framePool = sync.Pool{New: func() any {
	return &Frame{buf: make([]byte, maxHeaderBytes, 512)}
}}

// NewFrame returns an empty frame. The caller holds one reference to it.
func NewFrame() *Frame {
	f := framePool.Get().(*Frame)
	f.At, f.buf, f.start, f.droppable, f.policy, f.key = time.Time{}, f.buf[:maxHeaderBytes], 0, false, DefaultPolicy, ""
	f.deflated.reset()
	f.refs.Store(1)
	return f
}

// Write appends to the message. It never fails.
func (f *Frame) Write(p []byte) (int, error) {
	f.buf = append(f.buf, p...)
	return len(p), nil
}

// WriteString appends to the message.
func (f *Frame) WriteString(s string) { f.buf = append(f.buf, s...) }

// Append appends to the message what build appends to its argument.
func (f *Frame) Append(build func(b []byte) []byte) { f.buf = build(f.buf) }

// Text returns the message so far. It is valid until the next Write or Release.
func (f *Frame) Text() []byte { return f.buf[maxHeaderBytes:] }

// Retain adds a reference, for one more Queue.
func (f *Frame) Retain() { f.refs.Add(1) }

// Release gives up a reference. The last Release lets the frame be reused.
func (f *Frame) Release() {
	if f.refs.Add(-1) == 0 && cap(f.buf) <= maxPooledFrameBytes {
		framePool.Put(f)
	}
}

// Droppable applies the SlowConsumerPolicy to the frame. If that is Conflate and key is not
// "", a later frame of the same key replaces it.
func (f *Frame) Droppable(key string) { f.droppable, f.key = true, key }

// SetPolicy sets the policy of a droppable frame, instead of that of the connection. It must
// be called before the first Queue.
func (f *Frame) SetPolicy(p SlowConsumerPolicy) { f.policy = p }

// CopyPolicy makes f as droppable as another frame. It must be called before the first Queue.
func (f *Frame) CopyPolicy(from *Frame) {
	f.droppable, f.key, f.policy = from.droppable, from.key, from.policy
}

// policyOr returns the frame's policy, or fallback if it has none. A frame that is not droppable
// has that of Disconnect.
func (f *Frame) policyOr(fallback SlowConsumerPolicy) SlowConsumerPolicy {
	switch {
	case !f.droppable:
		return Disconnect
	case f.policy != DefaultPolicy:
		return f.policy
	case fallback == DefaultPolicy:
		return Disconnect
	}
	return fallback
}

// Key returns the argument of Droppable.
func (f *Frame) Key() string { return f.key }

// Seal ends a text message. A frame must be sealed once, before the first Queue.
func (f *Frame) Seal() { f.start = putHeader(f.buf, finText) }

// SealBinary ends a binary message, like Seal.
func (f *Frame) SealBinary() { f.start = putHeader(f.buf, finBinary) }

// putHeader writes a frame's header into the maxHeaderBytes before the payload, and
// returns where the frame starts.
func putHeader(buf []byte, first byte) (start int) {
	n := len(buf) - maxHeaderBytes
	switch {
	case n < 126:
		start = maxHeaderBytes - 2
		buf[start+1] = byte(n)
	case n < 1<<16:
		start = maxHeaderBytes - 4
		buf[start+1] = 126
		binary.BigEndian.PutUint16(buf[start+2:], uint16(n))
	default:
		buf[1] = 127
		binary.BigEndian.PutUint64(buf[2:], uint64(n))
	}
	buf[start] = first
	return start
}

// bytes returns a sealed frame as it is transmitted.
func (f *Frame) bytes() []byte { return f.buf[f.start:] }

// size is what a frame counts for in a queue's limit of bytes. Control frames count for
// nothing, also not as messages.
func (f *Frame) size() int {
	if f.control() {
		return 0
	}
	return len(f.buf) - f.start
}

// control reports whether a sealed frame is a control frame (RFC 6455, section 5.5).
func (f *Frame) control() bool { return f.buf[f.start]&opClose != 0 }

func (f *Frame) closing() bool { return f.buf[f.start] == finClose }

// maxControlBytes is the longest payload of a control frame (RFC 6455, section 5.5).
const maxControlBytes = 125

// controlFrame returns a sealed frame. The payload must not be longer than
// maxControlBytes.
func controlFrame(first byte, payload string) *Frame {
	f := NewFrame()
	f.WriteString(payload)
	f.Seal()
	f.buf[f.start] = first
	return f
}

// maxReasonBytes is what a close frame leaves for a reason behind the code.
const maxReasonBytes = maxControlBytes - 2

func closeFrame(code int, reason string) *Frame {
	reason = truncate(strings.ToValidUTF8(reason, "\ufffd"), maxReasonBytes)
	return controlFrame(finClose, string([]byte{byte(code >> 8), byte(code)})+reason)
}

// truncate shortens s to at most n bytes, at the start of a rune.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
