package wsconn

import (
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/internal/netpoll"
)

// A socket is the byte stream under a connection. Deadlines are set only when they are
// needed: setting one costs more than the rest of a read or a write. Times are since
// Engine.start.
type socket struct {
	conn net.Conn       // nil if the socket is in an event loop; a *tlsConn if a loop only watches it
	raw  netpoll.Socket // if conn is nil or a *tlsConn

	// These belong to the goroutine with the right to read.
	kernelEmpty   bool            // the last read left nothing in the kernel
	lastReadFull  bool            // the last read filled its buffer
	readsThisTurn uint8           // reads since Serve was called; it stays at the highest number
	consumed      int32           // bytes of chunk
	chunk         *netpoll.Buffer // what the last read has received; nil if it has been consumed
	bytesRead     int             // since the last message
	messageBy     time.Duration   // when the message that has begun must be complete; 0 if none has

	hangupOrUrgent atomic.Bool // see netpoll.HangupOrUrgent

	writeBy time.Duration // the write deadline that is set; belongs to the writing goroutine
}

// initSocket lets the connection own conn. early is what was read from it before.
func (c *Conn) initSocket(conn net.Conn, early []byte) {
	c.sock.conn = conn
	if len(early) > 0 {
		c.accept(netpoll.CopyBuffer(early), len(early))
	}
}

// unread returns what was received and has not been consumed. It is not empty while there is a chunk.
func (s *socket) unread() []byte {
	if s.chunk == nil {
		return nil
	}
	return s.chunk.Bytes[s.consumed:]
}

// fillSocket blocks until something is unread. An end of the stream is io.ErrUnexpectedEOF,
// because io.EOF is the end of a message.
func (c *Conn) fillSocket(idle bool) error {
	var err error
	if c.polled {
		err = c.fillPolled()
	} else {
		err = c.readConn(idle)
	}
	if err == io.EOF { //nolint:errorlint // a wrapped one is not the end of the stream
		return io.ErrUnexpectedEOF
	}
	return err
}

// fillPolled waits on the event loop.
func (c *Conn) fillPolled() error {
	by := c.sock.messageBy
	for {
		filled, err := c.tryFill()
		switch {
		case err != nil:
			return err
		case filled && by > 0 && c.sinceStart(c.sock.chunk.At) >= by: // the peer may send without a pause
			return os.ErrDeadlineExceeded
		case filled:
			return nil
		}
		var deadline time.Time
		if by > 0 {
			deadline = c.opts.Engine.start.Add(by)
		}
		if err := c.awaitReadable(deadline); err != nil {
			return err
		}
	}
}

// readConn reads from a connection that is in no event loop.
func (c *Conn) readConn(idle bool) error {
	s := &c.sock
	class := netpoll.ClassFor(c.opts.BufferBytes)
	if idle && !s.lastReadFull {
		class = 0 // the buffer stays allocated while the connection waits
	}
	chunk := netpoll.NewBuffer(class)
	n, err := s.conn.Read(chunk.Bytes[:cap(chunk.Bytes)])
	if n == 0 {
		chunk.Release()
		if err == nil {
			err = io.ErrNoProgress
		}
		return err
	}
	s.lastReadFull = n == cap(chunk.Bytes)
	c.accept(chunk, n) // the next read returns the error again
	return nil
}

// tryFill reports whether something is unread. It does not wait, except for the rest of a TLS
// record (see recordWait). The next read returns an error again.
func (c *Conn) tryFill() (bool, error) {
	s := &c.sock
	if t := s.tls(); t != nil {
		return c.tryFillTLS(t)
	}
	chunk := netpoll.NewBuffer(netpoll.ClassFor(c.opts.BufferBytes))
	n, err := s.raw.Read(chunk.Bytes[:cap(chunk.Bytes)])
	if n == 0 {
		chunk.Release()
		return false, err
	}
	s.kernelEmpty = s.raw.Emptied(n, cap(chunk.Bytes)) && !s.hangupOrUrgent.Load()
	s.readsThisTurn = max(s.readsThisTurn, s.readsThisTurn+1)
	c.accept(chunk, n)
	return true, nil
}

// accept makes n bytes of chunk unread.
func (c *Conn) accept(chunk *netpoll.Buffer, n int) {
	s := &c.sock
	chunk.Bytes, chunk.At = chunk.Bytes[:n], time.Now()
	c.seen(chunk.At)
	c.chunks.Add(1) // after lastSeen; see checkAlive
	s.chunk, s.consumed = chunk, 0
	s.bytesRead += n
}

func (s *socket) skip(n int) {
	if s.consumed += int32(n); int(s.consumed) == len(s.chunk.Bytes) {
		s.forget()
	}
}

// forget drops what is unread and returns its buffer.
func (s *socket) forget() {
	if s.chunk != nil {
		s.chunk.Release()
		s.chunk = nil
	}
}

// discardReceived drops what has been received. Closing a socket with unread input makes
// the kernel send a reset, which would overtake the close frame.
func (c *Conn) discardReceived() {
	c.sock.forget()
	if !c.polled && c.disarmMessageTimeout() == nil {
		c.sock.discardUnpolled(c.opts.BufferBytes)
	}
	for n := 0; c.polled && n < maxDiscards; n++ {
		filled, err := c.tryFill()
		if !filled || err != nil {
			return
		}
		c.sock.forget()
	}
}

// discardUnpolled drops what arrives until the peer ends its direction, too, as it does when it has seen that
// closeWrite has ended this one. The timer that Close has set ends that. Only sockets send resets.
func (s *socket) discardUnpolled(bytes int) {
	conn := s.network()
	if _, ok := conn.(closeWriter); !ok {
		return
	}
	dropped := netpoll.NewBuffer(netpoll.ClassFor(bytes))
	defer dropped.Release()
	for range maxDiscards {
		if _, err := conn.Read(dropped.Bytes[:cap(dropped.Bytes)]); err != nil {
			return
		}
	}
}

// armMessageTimeout bounds the time until the end of a message that has begun.
func (c *Conn) armMessageTimeout() error {
	if c.sock.messageBy > 0 {
		return nil
	}
	by := time.Now().Add(c.opts.MessageTimeout)
	c.sock.messageBy = c.sinceStart(by)
	if c.polled {
		return nil
	}
	return c.sock.conn.SetReadDeadline(by)
}

func (c *Conn) disarmMessageTimeout() error {
	if c.sock.messageBy == 0 {
		return nil
	}
	c.sock.messageBy = 0
	if c.polled {
		return nil
	}
	return c.sock.conn.SetReadDeadline(time.Time{})
}

// writeConn writes complete frames to a connection that is in no event loop, and returns how many
// bytes it wrote.
func (c *Conn) writeConn(p []byte, now time.Time) (int, error) {
	s, since := &c.sock, c.sinceStart(now)
	if s.writeBy-since <= c.opts.WriteTimeout/2 {
		// A write has between half the timeout and all of it, because setting a deadline costs more
		// than comparing times.
		s.writeBy = since + c.opts.WriteTimeout
		if err := s.conn.SetWriteDeadline(now.Add(c.opts.WriteTimeout)); err != nil {
			return 0, err
		}
	}
	return s.conn.Write(p)
}

// closeWrite closes one direction, so that the peer sees the end of the stream behind
// the last frame.
func (s *socket) closeWrite() {
	if s.conn == nil {
		s.raw.CloseWrite()
		return
	}
	if t := s.tls(); t != nil {
		t.endStream(&s.raw)
		return
	}
	for _, conn := range []net.Conn{s.conn, s.network()} { // of TLS, first the close_notify
		if half, ok := conn.(closeWriter); ok {
			_ = half.CloseWrite() // on failure the peer sees the end when the socket is closed
		}
	}
}

// A closeWriter is a connection whose outgoing direction can be ended.
type closeWriter interface{ CloseWrite() error }

// network returns the connection below TLS, or else the connection itself.
func (s *socket) network() net.Conn {
	if secure, ok := s.conn.(interface{ NetConn() net.Conn }); ok {
		return secure.NetConn()
	}
	return s.conn
}

// abort ends the network connection itself: TLS would first write an alert, and may
// wait five seconds for that.
func (s *socket) abort() {
	if s.conn == nil {
		s.raw.Abort()
		return
	}
	if t := s.tls(); t != nil {
		t.abort()
		return
	}
	_ = s.network().Close()
}

// close must be called once, by the goroutine with the right to read.
func (s *socket) close() {
	if s.conn == nil {
		s.raw.Close()
		return
	}
	if t := s.tls(); t != nil {
		t.close(&s.raw)
		return
	}
	_ = s.conn.Close()
}
