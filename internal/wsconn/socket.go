package wsconn

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"time"
)

// A socket is the net.Conn that the library reads from and writes to. Being in
// between gives deadlines without a cancellable context, which costs the
// library a dozen allocations an operation, and lets our own frames and the
// library's control frames share the wire.
type socket struct {
	net.Conn

	leftover []byte // what net/http had read beyond the handshake

	// inMessage and armed belong to the reading goroutine. A deadline is set
	// only when a message did not come in one piece.
	inMessage bool
	armed     bool
	timeout   time.Duration // for the rest of a message

	writeMu      sync.Mutex
	writeTimeout time.Duration
	shut         bool // a close frame went out
	closeWrite   bool // the wire is closed behind it, because nobody reads any more
}

// Read is what the library calls, when its buffer is empty.
func (s *socket) Read(p []byte) (int, error) {
	if len(s.leftover) > 0 {
		n := copy(p, s.leftover)
		if s.leftover = s.leftover[n:]; len(s.leftover) == 0 {
			s.leftover = nil
		}
		return n, nil
	}
	if s.inMessage && !s.armed {
		s.armed = true
		if err := s.SetReadDeadline(time.Now().Add(s.timeout)); err != nil {
			return 0, err
		}
	}
	return s.Conn.Read(p)
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
	return len(p), s.writeFrames(p, len(p) > 0 && p[0] == finClose)
}

// writeFrames writes whole frames. After a closing one, it drops everything:
// RFC 6455, section 5.5.1 allows no frame after a close frame.
func (s *socket) writeFrames(p []byte, closing bool) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if s.shut || len(p) == 0 {
		return nil
	}
	if err := s.SetWriteDeadline(time.Now().Add(s.writeTimeout)); err != nil {
		return err
	}
	_, err := s.Conn.Write(p)
	if closing {
		s.shut = true
		s.closeWriteIfShut()
	}
	return err
}

// closeWriteAfterClose tells a peer whose messages are not read any more that
// the close frame is the end.
func (s *socket) closeWriteAfterClose() {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.closeWrite = true
	s.closeWriteIfShut()
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
	sock            *socket
	readBufferBytes int
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
		h.sock.leftover = append([]byte(nil), head...)
	}
	h.sock.Conn = conn
	return h.sock, bufio.NewReadWriter(
		bufio.NewReaderSize(h.sock, h.readBufferBytes),
		bufio.NewWriterSize(h.sock, maxControlFrameBytes),
	), nil
}

// maxControlFrameBytes is enough for the only frames that the library writes,
// so that each reaches the socket in one call.
const maxControlFrameBytes = 2 + 125
