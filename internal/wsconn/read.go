package wsconn

import (
	"io"
	"os"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/netpoll"
)

// A Message is a received message.
type Message struct {
	*netpoll.Buffer           // the message, or its beginning if it was longer than the limit; nil if there is none
	Binary          bool      // a binary message; otherwise its bytes are valid UTF-8
	Size            int64     // of the whole message in bytes
	At              time.Time // when its last byte was read
	BytesRead       int       // from the socket since the previous message
}

// Truncated reports whether the message was longer than the limit, so that the buffer
// holds only its beginning.
func (m *Message) Truncated() bool { return m.Size > int64(len(m.Bytes)) }

// Read waits for a message and reads it to its end. If the message arrives in several
// parts, Read keeps only a little more than limit returns and drops the rest. It calls
// limit with the bytes that have arrived, and again with more bytes as long as limit
// returns a larger number. A message above Options.MaxMessageBytes closes the connection.
//
// A message without a Buffer means that only control frames have arrived, and that the
// connection can be parked again. An error is final: the connection is closed then, and
// only BytesRead of the message is set.
func (c *Conn) Read(limit func(prefix []byte) int64) (Message, error) {
	for {
		msg, err := c.next(limit)
		if err != nil {
			return Message{BytesRead: c.sock.bytesRead}, c.end(err)
		}
		if msg.Buffer == nil {
			return msg, nil
		}
		if !c.closing.Load() {
			msg.BytesRead, c.sock.bytesRead = c.sock.bytesRead, 0
			return msg, nil
		}
		msg.Release()
	}
}

// ReadingBinary reports whether the message that Read is reading is binary. Only the function that
// Read calls may call it.
func (c *Conn) ReadingBinary() bool { return c.frames.binary }

// next reads the next message, also while the connection is closing.
func (c *Conn) next(limit func(prefix []byte) int64) (Message, error) {
	if c.frames.failed != nil {
		return Message{}, c.frames.failed
	}
	if c.sock.chunk == nil {
		if err := c.fill(true); err != nil {
			return Message{}, err
		}
	}
	if msg, err := c.wholeMessage(); msg.Buffer != nil || err != nil {
		return msg, err
	}
	begun, err := c.beginMessage()
	if err != nil || !begun {
		return Message{}, err
	}
	share := budgetShare{budget: c.opts.Budget}
	defer share.release()
	r := io.Reader(payload{c})
	if c.frames.deflated {
		in := inflate(r, c.opts.MaxMessageBytes, c.windows.ToReceive())
		defer in.release()
		r = in
	}
	msg, err := c.readMessage(r, limit, &share)
	if err != nil {
		return Message{}, err
	}
	msg.At = time.Now()
	return msg, c.disarmMessageTimeout()
}

// fill blocks until something is unread. idle means that no part of a message has arrived,
// so that there is no time limit. Otherwise each part that arrives counts as an answer to
// a ping: a peer that sends a long frame cannot send a pong before the frame ends.
func (c *Conn) fill(idle bool) error {
	c.waiting.Store(true)
	defer c.waiting.Store(false)
	if idle {
		return c.fillSocket(true)
	}
	if err := c.armMessageTimeout(); err != nil {
		return err
	}
	return c.fillSocket(false)
}

func (c *Conn) readMessage(r io.Reader, limit func([]byte) int64, share *budgetShare) (Message, error) {
	m := Message{Buffer: netpoll.NewBuffer(0), Binary: c.frames.binary}
	text := utf8Checker{skip: m.Binary}
	for {
		n, err := c.readSome(r, m.Bytes[len(m.Bytes):cap(m.Bytes)], m.Size, &text)
		m.Bytes = m.Bytes[:len(m.Bytes)+n]
		m.Size += int64(n)
		switch {
		case err == io.EOF: //nolint:errorlint // wrapped, it would be the end of the socket
			return m, nil
		case err != nil:
			m.Release()
			return Message{}, err
		case len(m.Bytes) < cap(m.Bytes):
		default:
			grown, err := c.grow(&m, limit, share)
			if err == nil && !grown {
				if m.Size, err = c.discard(r, m.Size, &text); err == nil {
					return m, nil
				}
			}
			if err != nil {
				m.Release()
				return Message{}, err
			}
		}
	}
}

// ErrTooBig ends a connection with a message above Options.MaxMessageBytes.
var ErrTooBig = &violation{codeTooBig, "message is too big"}

// discard reads a message to its end and returns its size.
func (c *Conn) discard(r io.Reader, size int64, text *utf8Checker) (int64, error) {
	scratch := netpoll.NewBuffer(1)
	defer scratch.Release()
	for {
		n, err := c.readSome(r, scratch.Bytes[:cap(scratch.Bytes)], size, text)
		size += int64(n)
		switch {
		case err == io.EOF: //nolint:errorlint // as above
			return size, nil
		case err != nil:
			return size, err
		}
	}
}

// readSome reads into p what follows the first size bytes of a message.
func (c *Conn) readSome(r io.Reader, p []byte, size int64, text *utf8Checker) (int, error) {
	n, err := r.Read(p[:min(int64(len(p)), c.opts.MaxMessageBytes+1-size)])
	switch {
	case size+int64(n) > c.opts.MaxMessageBytes:
		return n, ErrTooBig
	case !text.check(p[:n]) || err == io.EOF && !text.complete():
		return n, errInvalidUTF8
	}
	return n, err
}

// end closes the connection after a failed read and returns the error. The peer gets a
// close frame with the reason, unless it has closed the connection or is not reachable.
func (c *Conn) end(err error) error {
	broken, isViolation := errors.AsType[*violation](err)
	peer, closedByPeer := errors.AsType[*closedError](err)
	switch {
	case closedByPeer:
		c.answerClose(peer)
		c.awaitCloseWritten()
		if !c.polled || c.sock.tls() != nil {
			c.sock.closeWrite() // a TLS stream without close_notify is taken for an incomplete one
		}
		c.discardReceived()
	case errors.Is(err, io.ErrUnexpectedEOF):
		c.writeQueued()
	case isViolation:
		c.closeAndLinger(broken.code, broken.reason)
	case errors.Is(err, os.ErrDeadlineExceeded): // not ETIMEDOUT, which is a lost network
		c.closeAndLinger(codePolicyViolation, "message took too long")
	}
	c.Abort()
	return err
}

// writeQueued ends a connection whose peer sends nothing more. What is queued is written first, because the
// peer may have ended only its own direction: at most until CloseTimeout.
func (c *Conn) writeQueued() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hasQueuedLocked() && c.inFlight == nil {
		return
	}
	if !c.closing.Swap(true) {
		c.setTimerLocked(c.opts.CloseTimeout)
	}
	for (c.hasQueuedLocked() || c.inFlight != nil) && !c.aborted {
		_ = c.awaitProgressLocked(patience{})
	}
}

// What a peer sends after the end is dropped in at most maxDiscards reads without a pause, so that a
// peer that goes on sending does not keep a processor busy.
const (
	maxDiscards  = 16
	discardPause = time.Millisecond
)

// closeAndLinger sends a close frame and then drops what the peer still sends, until the
// peer has seen that frame or the timer that Close has set aborts. Closing a socket
// with unread input makes the kernel send a reset, which would overtake the frame.
func (c *Conn) closeAndLinger(code int, text string) {
	c.Close(code, c.opts.reason(code, text))
	c.closeWriteAfterClose()
	if c.disarmMessageTimeout() != nil {
		return
	}
	for n := 0; c.fillSocket(false) == nil; n++ {
		c.sock.forget()
		if n >= maxDiscards {
			time.Sleep(discardPause)
		}
	}
	c.awaitCloseWritten() // the peer may have ended its direction and still read
	c.sock.closeWrite()   // again, because the writer may not have come to it
}
