//go:build linux && !386 && !s390x

package netpoll

import (
	"io"
	"net"
	"os"
	"syscall"
)

// A Socket is a kernel socket. One goroutine at a time may read and one may write;
// the two need not be the same. Deadlines and Close are those of the net.Conn.
type Socket struct {
	conn     syscall.RawConn
	network  string
	class    int                   // of the buffer that one system call fills
	readable func(fd uintptr) bool // the method values, stored so that using them allocates nothing
	writable func(fd uintptr) bool

	wait    bool // the reader waits for bytes
	read    *Buffer
	readErr error

	unwritten []byte
	writeErr  error
}

// NewSocket returns the socket of a connection, or nil if the connection is not a
// kernel stream socket (TLS, for example). Reads fill buffers of the given class.
func NewSocket(conn net.Conn, class int) *Socket {
	var raw syscall.RawConn
	var err error
	switch conn := conn.(type) {
	case *net.TCPConn:
		raw, err = conn.SyscallConn()
	case *net.UnixConn:
		raw, err = conn.SyscallConn()
	}
	if raw == nil || err != nil {
		return nil
	}
	s := &Socket{conn: raw, network: conn.LocalAddr().Network(), class: class}
	s.readable, s.writable = s.tryRead, s.tryWrite
	return s
}

// Read returns at least one byte, or an error. If there is neither, it waits, or
// returns nil if wait is false. The caller owns the buffer.
func (s *Socket) Read(wait bool) (*Buffer, error) {
	s.wait, s.read, s.readErr = wait, nil, nil
	if err := s.conn.Read(s.readable); err != nil {
		return nil, err
	}
	b := s.read
	s.read = nil
	return b, s.readErr
}

// Emptied reports whether the read that returned b has emptied the socket (man 7
// epoll, question 9). A Unix socket ends a read at the boundary between two senders,
// so a short read proves nothing there.
func (s *Socket) Emptied(b *Buffer) bool { return s.network == "tcp" && len(b.Bytes) < cap(b.Bytes) }

// tryRead returns false if the caller has to wait.
func (s *Socket) tryRead(fd uintptr) bool {
	b := NewBuffer(s.class)
	n, err := recvNow(fd, b.Bytes[:cap(b.Bytes)])
	if n > 0 {
		b.Bytes = b.Bytes[:n]
		s.read = b
		return true
	}
	b.Release()
	switch err { //nolint:errorlint // an errno is not wrapped
	case syscall.EAGAIN:
		return !s.wait
	case nil:
		s.readErr = io.EOF
	default:
		s.readErr = &net.OpError{Op: "read", Net: s.network, Err: os.NewSyscallError("read", err)}
	}
	return true
}

// Write writes all of p, or returns how many bytes it wrote and an error.
func (s *Socket) Write(p []byte) (int, error) {
	s.unwritten, s.writeErr = p, nil
	err := s.conn.Write(s.writable)
	if err == nil {
		err = s.writeErr
	}
	n := len(p) - len(s.unwritten)
	s.unwritten = nil
	return n, err
}

// tryWrite returns false if the caller has to wait.
func (s *Socket) tryWrite(fd uintptr) bool {
	for len(s.unwritten) > 0 {
		n, err := sendNow(fd, s.unwritten[:min(len(s.unwritten), MaxBufferBytes)])
		switch err { //nolint:errorlint // an errno is not wrapped
		case syscall.EAGAIN:
			return false
		case nil:
			s.unwritten = s.unwritten[n:]
		default:
			s.writeErr = &net.OpError{Op: "write", Net: s.network, Err: os.NewSyscallError("write", err)}
			return true
		}
	}
	return true
}
