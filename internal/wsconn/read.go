package wsconn

import (
	"context"
	"io"
	"net"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/errors"
)

// A Message is what came in.
type Message struct {
	*Buffer           // the message, or as much of it as the limit allowed
	Size    int64     // of the whole message in bytes
	At      time.Time // when its last byte was read
	Came    int       // bytes from the wire since the message before
}

// Cut reports whether the message was longer than the limit, so that the buffer
// holds only its beginning.
func (m *Message) Cut() bool { return m.Size > int64(len(m.Bytes)) }

// Read waits for a message and reads it to its end. Of a message that does not
// come in one piece, it keeps only a little more than limit says; the rest is
// read and dropped. Limit is asked with the bytes that are there, and again with
// more of them while it says that more are wanted. A message above
// Options.MaxMessageBytes closes the connection.
//
// An error is final: the connection is closed then. Of the Message, only Came is set.
func (c *Conn) Read(limit func(prefix []byte) int64) (Message, error) {
	for {
		msg, err := c.next(limit)
		if err != nil {
			return Message{Came: c.sock.came}, c.ended(err)
		}
		msg.At = time.Now()
		c.seen(msg.At)
		if !c.closing.Load() {
			msg.Came, c.sock.came = c.sock.came, 0
			return msg, nil
		}
		msg.Release()
	}
}

func (c *Conn) next(limit func(prefix []byte) int64) (Message, error) {
	if c.sock.readAhead() {
		c.reading.Store(true)
		err := c.sock.fill()
		c.reading.Store(false)
		if err != nil {
			return Message{}, err
		}
		if msg, ok := c.simpleMessage(); ok {
			return msg, nil
		}
	}
	c.reading.Store(true)
	_, r, err := c.lib.Reader(context.Background())
	c.reading.Store(false)
	if err != nil {
		return Message{}, err
	}
	c.sock.beginMessage()
	if c.sock.frames.nextIsDeflated() {
		in := inflate(r, c.opts.MaxMessageBytes)
		defer in.release()
		r = in
	}
	msg, err := c.readMessage(r, limit)
	if err != nil {
		return Message{}, err
	}
	return msg, c.sock.endMessage()
}

func (c *Conn) readMessage(r io.Reader, limit func([]byte) int64) (Message, error) {
	m := Message{Buffer: newBuffer(0)}
	for {
		n, err := c.readSome(r, m.Bytes[len(m.Bytes):cap(m.Bytes)], m.Size)
		m.Bytes = m.Bytes[:len(m.Bytes)+n]
		m.Size += int64(n)
		switch {
		case err == io.EOF: //nolint:errorlint // wrapped, it is the end of the socket
			return m, nil
		case err != nil:
			m.Release()
			return Message{}, err
		case len(m.Bytes) < cap(m.Bytes):
		case int64(len(m.Bytes)) >= limit(m.Bytes):
			m.Size, err = c.discard(r, m.Size)
			if err != nil {
				m.Release()
				return Message{}, err
			}
			return m, nil
		default:
			m.Buffer = m.grow()
		}
	}
}

// discard reads a message to its end, because the library would take what is
// left of its payload for frames.
func (c *Conn) discard(r io.Reader, size int64) (int64, error) {
	scratch := newBuffer(1)
	defer scratch.Release()
	for {
		n, err := c.readSome(r, scratch.Bytes[:cap(scratch.Bytes)], size)
		size += int64(n)
		switch {
		case err == io.EOF: //nolint:errorlint // wrapped, it is the end of the socket
			return size, nil
		case err != nil:
			return size, err
		}
	}
}

// readSome reads into p what follows the first size bytes of a message. The
// library fills p if it can, so p must not reach far beyond the hard cap: the
// peer may never send that much.
func (c *Conn) readSome(r io.Reader, p []byte, size int64) (int, error) {
	n, err := r.Read(p[:min(int64(len(p)), c.opts.MaxMessageBytes+1-size)])
	if size+int64(n) > c.opts.MaxMessageBytes {
		return n, errTooBig
	}
	return n, err
}

var errTooBig = errors.New("message is longer than the connection allows")

// ended closes the connection after a failed read, telling the peer why if that
// is not its own doing, and returns the reason.
func (c *Conn) ended(err error) error {
	code, reason := 0, ""
	peer, closedByPeer := errors.AsType[websocket.CloseError](err)
	network, isNetwork := errors.AsType[net.Error](err)
	switch {
	case closedByPeer:
		c.status(int(peer.Code), peer.Reason)
	case errors.Is(err, errTooBig):
		code, reason = CodeTooBig, "message is too big"
	case errors.Is(err, errFlood):
		code, reason = CodePolicyViolation, errFlood.Error()
	case isNetwork && network.Timeout():
		code, reason = CodePolicyViolation, "message took too long"
	case isNetwork, errors.Is(err, net.ErrClosed), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
	default:
		code, reason = CodeProtocolError, "protocol error"
	}
	if code != 0 {
		c.sock.closeWriteAfterClose()
		c.Close(code, reason)
		c.linger()
	}
	c.Abort()
	return err
}

// status records the code of a close frame, if it is the first.
func (c *Conn) status(code int, reason string) {
	reason = strings.ToValidUTF8(reason, "\ufffd") // the library does not look
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing.Store(true)
	if c.code == 0 {
		c.code, c.reason = code, reason
	}
}

// linger drops what the peer still sends, until it has seen our close frame or
// the timer that Close has set aborts. Closing a socket with unread input makes
// the kernel send a reset, which would overtake that frame.
func (c *Conn) linger() {
	if c.sock.SetReadDeadline(time.Time{}) != nil {
		return
	}
	scratch := newBuffer(1)
	defer scratch.Release()
	for {
		if _, err := c.sock.Conn.Read(scratch.Bytes[:cap(scratch.Bytes)]); err != nil {
			return
		}
	}
}
