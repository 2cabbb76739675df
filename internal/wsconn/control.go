package wsconn

import (
	"encoding/binary"
	"time"
	"unicode/utf8"
)

// A client may send controlsPerSecond control frames a second, and controlBurst of them
// at once: each costs work and passes no rate limit of the application.
const (
	controlsPerSecond = 20
	controlBurst      = 100
)

// A controlLimit is a token bucket, as the time at which it will be full again, since any time that
// the caller chooses.
type controlLimit struct{ fullAt time.Duration }

func (l *controlLimit) allow(now time.Duration) bool {
	const each, capacity = time.Second / controlsPerSecond, controlBurst * time.Second / controlsPerSecond
	fullAt := max(l.fullAt, now) + each
	if fullAt-now > capacity {
		return false
	}
	l.fullAt = fullAt
	return true
}

var errControlFlood = &violation{codePolicyViolation, "too many control frames"}

// readControl consumes a control frame whose header has been read.
func (c *Conn) readControl(h header) error {
	if !c.frames.controls.allow(c.sinceStart(time.Now())) {
		return errControlFlood
	}
	var buf [maxControlBytes]byte
	payload := buf[:h.length]
	if err := c.readFull(payload, false); err != nil {
		return err
	}
	mask(payload, payload, h.key, 0)
	switch h.opcode {
	case opPing:
		c.queuePong(payload)
	case opPong:
		c.measureRTT(payload)
	case opClose:
		return parseClose(payload)
	}
	return nil
}

// wholeControl returns the header of an unread ping or pong that has arrived completely.
func (c *Conn) wholeControl() (header, bool) {
	p := c.sock.unread()
	if len(p) < 2+keyBytes || p[0] != finBit|opPing && p[0] != finBit|opPong {
		return header{}, false
	}
	n := int(p[1] &^ maskBit)
	if _, err := headerBytes(p[0], p[1]); err != nil || len(p) < 2+keyBytes+n {
		return header{}, false
	}
	return header{opcode: p[0] & 0x0f, fin: true, length: uint64(n), key: [keyBytes]byte(p[2:])}, true
}

// readControls consumes unread pings and pongs that have arrived completely. It does not block.
func (c *Conn) readControls() error {
	for {
		h, ok := c.wholeControl()
		if !ok {
			return nil
		}
		c.sock.skip(2 + keyBytes)
		if err := c.readControl(h); err != nil {
			return err
		}
	}
}

// maxPongs may wait in the queue: as many as a peer may cause at once, so that one that reads gets all of them.
const maxPongs = controlBurst

// queuePong answers a ping. The limits of the queue do not count pongs, so one too many replaces the one before: only
// the most recent ping must be answered (RFC 6455, section 5.5.3).
func (c *Conn) queuePong(payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing.Load() {
		return // no frame may follow a close frame
	}
	if q := c.queueLocked(); q != nil && q.pongs >= maxPongs {
		q.drop(q.newest(finPong))
	}
	c.enqueueControlLocked(controlFrame(finPong, string(payload)))
}

// A closedError is a close frame of the peer.
type closedError struct {
	code   int
	reason string
}

func (e *closedError) Error() string { return "closed by the peer" }

// parseClose checks the payload of a close frame (RFC 6455, sections 5.5.1 and 7.4) and
// returns it as an error.
func parseClose(payload []byte) error {
	if len(payload) == 0 {
		return &closedError{code: codeNoStatus}
	}
	if len(payload) == 1 {
		return protocolError("a close frame of one byte")
	}
	code, reason := int(binary.BigEndian.Uint16(payload)), payload[2:]
	switch {
	case !ValidCloseCode(code):
		return protocolError("a close code that must not be sent")
	case !utf8.Valid(reason):
		return errInvalidUTF8
	}
	return &closedError{code, string(reason)}
}

// ValidCloseCode reports whether a close frame may carry a code: those that RFC 6455
// and the IANA registry define for that, and those of libraries and applications.
func ValidCloseCode(code int) bool {
	switch code {
	case 1004, codeNoStatus, CodeAbnormal:
		return false
	}
	return code >= codeNormal && code <= 1014 || code >= 3000 && code <= 4999
}

// answerClose answers the peer's close frame with the same code, after the queued frames. It
// does nothing if a close frame is already queued or sent.
func (c *Conn) answerClose(peer *closedError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing.Load() {
		return
	}
	f := controlFrame(finClose, "")
	if peer.code != codeNoStatus {
		f.Release()
		f = closeFrame(peer.code, peer.reason)
	}
	c.beginClosingLocked(f, peer.code, peer.reason)
}
