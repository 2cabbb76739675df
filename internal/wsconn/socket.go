package wsconn

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A socket is the net.Conn that the library reads from and writes to. Being in
// between gives deadlines without a cancellable context, which costs the
// library a dozen allocations an operation, and lets our own frames and the
// library's control frames share the wire.
type socket struct {
	net.Conn

	owner Owner

	// unread is what has been read from the wire and not been asked for yet. It
	// belongs to chunk, if there is one.
	unread  []byte
	chunk   *Buffer
	drained bool        // the last read has left nothing
	over    atomic.Bool // the kernel has told of an end or an error, which it does only once
	wire    *wire       // nil if the socket is not the kernel's own

	buffered *bufio.Reader // what the library has asked for and not used yet
	frames   inspector
	wrong    error // of the inspector's: the library gets it when it has read what comes before

	// These belong to the reading goroutine. A deadline is set
	// only when a message did not come in one piece.
	inMessage bool
	armed     bool
	came      int           // bytes from the wire since the last message
	timeout   time.Duration // for the rest of a message

	writeMu      sync.Mutex
	writeTimeout time.Duration
	writeBy      time.Time // the deadline that is set
	shut         bool      // nothing may go out any more
	closeWrite   bool      // the wire is closed behind it, because nobody reads any more
}

// Read is what the library calls, when its small buffer is empty. What has come
// meanwhile is read in one system call, into a buffer that nobody holds while
// there is nothing to read.
func (s *socket) Read(p []byte) (int, error) {
	if s.wrong != nil {
		return 0, s.wrong
	}
	n, err := s.read(p)
	if err == io.EOF { //nolint:errorlint // a wrapped one is not taken for the end of a message
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return n, err
	}
	if n, s.wrong = s.frames.pass(p[:n]); n == 0 {
		return 0, s.wrong
	}
	return n, nil
}

func (s *socket) read(p []byte) (int, error) {
	if len(s.unread) > 0 {
		return s.serve(p), nil
	}
	if s.inMessage && !s.armed {
		s.armed = true
		if err := s.SetReadDeadline(time.Now().Add(s.timeout)); err != nil {
			return 0, err
		}
	}
	if s.wire == nil {
		n, err := s.Conn.Read(p)
		s.came += n
		return n, err
	}
	if err := s.fill(); err != nil {
		return 0, err
	}
	return s.serve(p), nil
}

// readAhead reports whether what comes next can be looked at before the library
// asks for it. What is behind a forbidden frame cannot: it may be in the middle of one.
func (s *socket) readAhead() bool {
	return s.wire != nil && s.wrong == nil && s.buffered.Buffered() == 0
}

// ahead reports whether reading returns at once.
func (s *socket) ahead() bool {
	return len(s.unread) > 0 || s.buffered.Buffered() > 0 || s.wrong != nil
}

// fill waits until something is unread.
func (s *socket) fill() error {
	if len(s.unread) > 0 {
		return nil
	}
	chunk, err := s.wire.read(true)
	if err != nil {
		return err
	}
	s.take(chunk)
	return nil
}

// tryFill reports whether something is unread now. Its error is what fill returns, too.
func (s *socket) tryFill() (bool, error) {
	chunk, err := s.wire.read(false)
	if chunk != nil {
		s.take(chunk)
	}
	return chunk != nil, err
}

func (s *socket) take(chunk *Buffer) {
	s.chunk, s.unread = chunk, chunk.Bytes
	s.drained = s.wire.drained(chunk) && !s.over.Load()
	s.came += len(chunk.Bytes)
}

func (s *socket) serve(p []byte) int {
	n := copy(p, s.unread)
	s.skip(n)
	return n
}

func (s *socket) skip(n int) {
	if s.unread = s.unread[n:]; len(s.unread) == 0 {
		s.forget()
	}
}

// forget gives back what has been read.
func (s *socket) forget() {
	s.unread = nil
	if s.chunk != nil {
		s.chunk.Release()
		s.chunk = nil
	}
}

// beginMessage bounds the time until endMessage.
func (s *socket) beginMessage() { s.inMessage = true }

func (s *socket) endMessage() error {
	s.inMessage = false
	if !s.armed {
		return nil
	}
	s.armed = false
	return s.SetReadDeadline(time.Time{})
}

// Write is what the library calls, with one whole control frame at a time.
func (s *socket) Write(p []byte) (int, error) {
	_, n, err := s.writeFrames(p, len(p) > 0 && p[0] == finClose)
	if n > 0 {
		s.owner.Wrote(Write{Frames: 1, Bytes: n})
	}
	return len(p), err
}

// writeFrames writes whole frames, and returns when it began to, and how many bytes it
// wrote. After a closing one, it drops everything: RFC 6455, section 5.5.1 allows no
// frame after a close frame.
func (s *socket) writeFrames(p []byte, closing bool) (at time.Time, n int, err error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if s.shut || len(p) == 0 {
		return time.Time{}, 0, nil
	}
	at = time.Now()
	if err := s.boundWrite(at); err != nil {
		return at, 0, err
	}
	if s.wire != nil {
		n, err = s.wire.write(p)
	} else {
		n, err = s.Conn.Write(p)
	}
	if err != nil {
		s.shut = true // a frame may have been cut, and what follows would be taken for its rest
	}
	if closing {
		s.shut = true
		s.closeWriteIfShut()
	}
	return at, n, err
}

// boundWrite gives a write between half the timeout and all of it, because setting
// a deadline costs more than looking at one.
func (s *socket) boundWrite(now time.Time) error {
	if s.writeBy.Sub(now) > s.writeTimeout/2 {
		return nil
	}
	s.writeBy = now.Add(s.writeTimeout)
	return s.SetWriteDeadline(s.writeBy)
}

// closeWriteAfterClose tells a peer whose messages are not read any more that
// the close frame is the end.
func (s *socket) closeWriteAfterClose() {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.closeWrite = true
	s.closeWriteIfShut()
}

// abort closes the wire itself: TLS would first write an alert, and may wait five
// seconds for it.
func (s *socket) abort() {
	if secure, ok := s.Conn.(interface{ NetConn() net.Conn }); ok {
		_ = secure.NetConn().Close()
		return
	}
	_ = s.Close()
}

func (s *socket) closeWriteIfShut() {
	half, ok := s.Conn.(interface{ CloseWrite() error })
	if ok && s.shut && s.closeWrite {
		_ = half.CloseWrite() // the peer learns it from the socket's end
	}
}

// A hijacker hands the library our socket and small buffers in place of
// net/http's.
type hijacker struct {
	http.ResponseWriter
	sock  *socket
	class int // of the buffers for system calls
}

// Hijack is what the library calls, once.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	// A fast client's first frame may stand in net/http's buffer already.
	if n := rw.Reader.Buffered(); n > 0 {
		head, err := rw.Peek(n)
		if err != nil {
			return nil, nil, err
		}
		h.sock.unread = append([]byte(nil), head...)
		h.sock.came = n
	}
	h.sock.Conn, h.sock.wire = conn, newWire(conn, h.class)
	h.sock.buffered = bufio.NewReaderSize(h.sock, libraryBufferBytes)
	return h.sock, bufio.NewReadWriter(
		h.sock.buffered,
		bufio.NewWriterSize(h.sock, maxControlFrameBytes),
	), nil
}

// libraryBufferBytes is what the library reads headers through. Payloads pass it
// by, and what is read in one system call waits in a buffer of our own.
const libraryBufferBytes = 128

// maxControlFrameBytes is enough for the only frames that the library writes,
// so that each reaches the socket in one call.
const maxControlFrameBytes = 2 + maxControlBytes
