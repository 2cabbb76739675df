package wsconn

import (
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/internal/netpoll"
)

// A socket is the byte stream under a connection. Deadlines are set only when they are
// needed: setting one costs more than the rest of a read or a write.
type socket struct {
	conn net.Conn
	raw  *netpoll.Socket // nil if conn is not a kernel socket
	opts *Options

	// These belong to the reading goroutine.
	unread    []byte          // received and not yet consumed; part of chunk, if there is one
	chunk     *netpoll.Buffer // of the last read
	emptied   bool            // the last read left nothing in the kernel
	filled    bool            // the last read filled its buffer
	bytesRead int             // since the last message
	armed     bool            // a read deadline is set

	special atomic.Bool // see netpoll.Waiter

	// These belong to the writing goroutine.
	writeBy time.Time // the write deadline that is set
	failed  bool      // a frame may have been written in part: nothing may follow
}

// init prepares a socket that owns conn. early is what was read from it before.
func (s *socket) init(conn net.Conn, opts *Options, early []byte) {
	s.conn, s.opts = conn, opts
	s.raw = netpoll.NewSocket(conn, netpoll.ClassFor(opts.BufferBytes))
	s.unread, s.bytesRead = early, len(early)
}

// fill blocks until something is unread. An end of the stream is io.ErrUnexpectedEOF,
// because io.EOF is the end of a message.
func (s *socket) fill(idle bool) error {
	chunk, err := s.readChunk(idle)
	if err == io.EOF { //nolint:errorlint // a wrapped one is not the end of the stream
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	s.accept(chunk)
	return nil
}

func (s *socket) readChunk(idle bool) (*netpoll.Buffer, error) {
	if s.raw != nil {
		return s.raw.Read(true)
	}
	class := netpoll.ClassFor(s.opts.BufferBytes)
	if idle && !s.filled {
		class = 0 // the buffer stays allocated while the connection waits
	}
	chunk := netpoll.NewBuffer(class)
	n, err := s.conn.Read(chunk.Bytes[:cap(chunk.Bytes)])
	if n == 0 {
		chunk.Release()
		if err == nil {
			err = io.ErrNoProgress
		}
		return nil, err
	}
	chunk.Bytes = chunk.Bytes[:n] // the next read returns the error again
	s.filled = n == cap(chunk.Bytes)
	return chunk, nil
}

// tryFill reports whether something is unread. It does not block. The next read
// returns an error again.
func (s *socket) tryFill() (bool, error) {
	chunk, err := s.raw.Read(false)
	if chunk != nil {
		s.accept(chunk)
	}
	return chunk != nil, err
}

func (s *socket) accept(chunk *netpoll.Buffer) {
	s.chunk, s.unread = chunk, chunk.Bytes
	s.emptied = s.raw != nil && s.raw.Emptied(chunk) && !s.special.Load()
	s.bytesRead += len(chunk.Bytes)
}

// skip consumes n unread bytes.
func (s *socket) skip(n int) {
	if s.unread = s.unread[n:]; len(s.unread) == 0 {
		s.forget()
	}
}

// forget drops what is unread and returns its buffer.
func (s *socket) forget() {
	s.unread = nil
	if s.chunk != nil {
		s.chunk.Release()
		s.chunk = nil
	}
}

// discardReceived drops what has been received. Closing a socket with unread input makes
// the kernel send a reset, which would overtake the close frame.
func (s *socket) discardReceived() {
	if s.raw == nil {
		return
	}
	for {
		chunk, err := s.raw.Read(false)
		if chunk == nil || err != nil {
			return
		}
		chunk.Release()
	}
}

// armMessageTimeout bounds the time until the end of a message that has begun.
func (s *socket) armMessageTimeout() error {
	if s.armed {
		return nil
	}
	s.armed = true
	return s.conn.SetReadDeadline(time.Now().Add(s.opts.MessageTimeout))
}

func (s *socket) disarmMessageTimeout() error {
	if !s.armed {
		return nil
	}
	s.armed = false
	return s.conn.SetReadDeadline(time.Time{})
}

// write writes complete frames and returns how many bytes it wrote.
func (s *socket) write(p []byte, now time.Time) (n int, err error) {
	if s.failed {
		return 0, net.ErrClosed
	}
	err = s.boundWrite(now)
	switch {
	case err != nil:
	case s.raw != nil:
		n, err = s.raw.Write(p)
	default:
		n, err = s.conn.Write(p)
	}
	s.failed = err != nil
	return n, err
}

// boundWrite gives a write between half the timeout and all of it, because setting a
// deadline costs more than comparing times.
func (s *socket) boundWrite(now time.Time) error {
	if s.writeBy.Sub(now) > s.opts.WriteTimeout/2 {
		return nil
	}
	s.writeBy = now.Add(s.opts.WriteTimeout)
	return s.conn.SetWriteDeadline(s.writeBy)
}

// closeWrite closes one direction, so that the peer sees the end of the stream behind
// the last frame.
func (s *socket) closeWrite() {
	if half, ok := s.conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // on failure the peer sees the end when the socket is closed
	}
}

// abort closes the network connection itself: TLS would first write an alert, and may
// wait five seconds for that.
func (s *socket) abort() {
	if secure, ok := s.conn.(interface{ NetConn() net.Conn }); ok {
		_ = secure.NetConn().Close()
		return
	}
	_ = s.conn.Close()
}
