//go:build unix

package wsconn

import (
	"io"
	"net"
	"os"
	"syscall"
)

// A rawReader reads from a socket of the kernel without holding a buffer while it
// waits.
type rawReader struct {
	conn  syscall.RawConn
	class int                   // of the buffer that takes what one system call reads
	ready func(fd uintptr) bool // the method value, made once so that using it allocates nothing

	chunk *Buffer
	err   error
}

// newRawReader returns nil for what is not a socket of the kernel, such as TLS.
func newRawReader(conn net.Conn, class int) *rawReader {
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
	r := &rawReader{conn: raw, class: class}
	r.ready = r.tryRead
	return r
}

// read waits for bytes and returns at least one, or an error.
func (r *rawReader) read() (*Buffer, error) {
	if err := r.conn.Read(r.ready); err != nil {
		return nil, err
	}
	chunk := r.chunk
	r.chunk = nil
	return chunk, r.err
}

// tryRead reports whether there was something to read, be it an error.
func (r *rawReader) tryRead(fd uintptr) bool {
	chunk := newBuffer(r.class)
	n, err := readOnce(int(fd), chunk.Bytes[:cap(chunk.Bytes)])
	if n > 0 {
		chunk.Bytes = chunk.Bytes[:n]
		r.chunk, r.err = chunk, nil
		return true
	}
	chunk.Release()
	switch err { //nolint:errorlint // an errno is not wrapped
	case syscall.EAGAIN:
		return false
	case nil:
		r.err = io.EOF
	default:
		r.err = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", err)}
	}
	return true
}

func readOnce(fd int, p []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, p)
		if err != syscall.EINTR {
			return n, err
		}
	}
}
