//go:build linux && !386 && !s390x && !simulatedpoll

package netpoll

import (
	"net"
	"syscall"

	"github.com/penstock-go/penstock/errors"
)

// Attach moves a connection to an event loop, which reports to w from then on, and initializes
// s with its socket. The descriptor leaves Go's poller: it is duplicated, and conn is closed. If
// Attach fails, conn is as it was: because the connection is not a kernel socket (TLS, for
// example), or because the system has no descriptors left.
func (p *Poller) Attach(conn net.Conn, w Waiter, s *Socket) error {
	fd, err := duplicate(conn)
	if err != nil {
		return err
	}
	s.init(fd, conn.LocalAddr().Network() == "tcp")
	if err := p.add(s, w); err != nil {
		return errors.Join(err, syscall.Close(fd))
	}
	_ = conn.Close()
	return nil
}

// duplicate returns a new descriptor of a connection's socket.
func duplicate(conn net.Conn) (fd int, err error) {
	var raw syscall.RawConn
	switch conn := conn.(type) {
	case *net.TCPConn:
		raw, err = conn.SyscallConn()
	case *net.UnixConn:
		raw, err = conn.SyscallConn()
	default:
		return 0, errors.ErrUnsupported
	}
	if err != nil {
		return 0, err
	}
	controlErr := raw.Control(func(original uintptr) {
		n, _, errno := syscall.RawSyscall(syscall.SYS_FCNTL, original, syscall.F_DUPFD_CLOEXEC, 0)
		if fd = int(n); errno != 0 {
			err = errno
		}
	})
	return fd, errors.Join(controlErr, err)
}
