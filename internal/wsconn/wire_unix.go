//go:build unix

package wsconn

import (
	"io"
	"net"
	"os"
	"syscall"
)

// A wire is a socket of the kernel. It holds no buffer while it waits for bytes, and on
// Linux its system calls are not announced to Go's scheduler: see trial_linux.go.
type wire struct {
	conn     syscall.RawConn
	tcp      bool
	class    int                   // of the buffer that takes what one system call reads
	readable func(fd uintptr) bool // the method values, made once so that using them allocates nothing
	writable func(fd uintptr) bool

	waits   bool    // for bytes
	chunk   *Buffer // what was read
	readErr error

	unwritten []byte
	writeErr  error
}

// newWire returns nil for what is not a socket of the kernel, such as TLS.
func newWire(conn net.Conn, class int) *wire {
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
	_, tcp := conn.(*net.TCPConn)
	w := &wire{conn: raw, tcp: tcp, class: class}
	w.readable, w.writable = w.tryRead, w.tryWrite
	return w
}

// read returns at least a byte, or an error. If there is neither, it waits or returns nil. It is
// for one goroutine at a time.
func (w *wire) read(wait bool) (*Buffer, error) {
	w.waits, w.chunk, w.readErr = wait, nil, nil
	if err := w.conn.Read(w.readable); err != nil {
		return nil, err
	}
	chunk := w.chunk
	w.chunk = nil
	return chunk, w.readErr
}

// drained reports whether a read that returned chunk has left nothing: man 7 epoll, question 9.
// A Unix socket stops between what two processes have sent.
func (w *wire) drained(chunk *Buffer) bool { return w.tcp && len(chunk.Bytes) < cap(chunk.Bytes) }

// tryRead reports whether there was something to read, be it an error, or nobody waits for it.
func (w *wire) tryRead(fd uintptr) bool {
	chunk := newBuffer(w.class)
	n, err := tryRead(fd, chunk.Bytes[:cap(chunk.Bytes)])
	if n > 0 {
		chunk.Bytes = chunk.Bytes[:n]
		w.chunk = chunk
		return true
	}
	chunk.Release()
	switch err { //nolint:errorlint // an errno is not wrapped
	case syscall.EAGAIN:
		return !w.waits
	case nil:
		w.readErr = io.EOF
	default:
		w.readErr = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", err)}
	}
	return true
}

// write writes all of p, or returns how much and an error. It is for one goroutine at a
// time.
func (w *wire) write(p []byte) (int, error) {
	w.unwritten, w.writeErr = p, nil
	err := w.conn.Write(w.writable)
	if err == nil {
		err = w.writeErr
	}
	n := len(p) - len(w.unwritten)
	w.unwritten = nil
	return n, err
}

// tryWrite reports whether all is written, or cannot be.
func (w *wire) tryWrite(fd uintptr) bool {
	for len(w.unwritten) > 0 {
		n, err := tryWrite(fd, w.unwritten[:min(len(w.unwritten), MaxBufferBytes)])
		switch err { //nolint:errorlint // an errno is not wrapped
		case syscall.EAGAIN:
			return false
		case nil:
			w.unwritten = w.unwritten[n:]
		default:
			w.writeErr = &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", err)}
			return true
		}
	}
	return true
}
