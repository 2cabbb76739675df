//go:build linux && !386 && !s390x && !simulatedpoll

package netpoll

import (
	"net"
	"syscall"
	"unsafe"

	"github.com/penstock-go/penstock/errors"
)

// Watch registers a connection with an event loop, which reports to w from then on, and
// initializes s. Unlike Attach, it leaves the descriptor to conn, which goes on to read, write and
// close: the loop only reports when there is something to read. Of the methods of s, only Loop,
// Order, ReportAgain, Unwatch, Readable and Writable may be called.
func (p *Poller) Watch(conn *net.TCPConn, w Waiter, s *Socket) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) {
		s.init(int(fd), true)
		err = p.add(s, w)
	})
	return errors.Join(controlErr, err)
}

// Unwatch ends what Watch has begun. It must be called once, and before conn is closed: another
// connection may get the descriptor's number then.
func (s *Socket) Unwatch(conn *net.TCPConn) {
	raw, err := conn.SyscallConn()
	if err == nil {
		// If other code has closed the connection, the kernel has removed it from the epoll instance,
		// and Control fails.
		_ = raw.Control(func(fd uintptr) { s.loop.epoll.unregister(s) })
	}
	s.group.release(s)
}

// Readable reports whether a read returns at once: there is data, the end of the stream or an
// error. An error that the kernel reports only once is returned.
func (s *Socket) Readable() (bool, error) {
	switch errno := peekNow(uintptr(s.fd)); errno {
	case 0:
		return true, nil
	case syscall.EAGAIN:
		return false, nil
	default:
		return false, s.opError("read", errno)
	}
}

// Writable reports whether the kernel has room for a few kilobytes: at least a third of the send
// buffer is free (man 2 poll, POLLOUT).
func (s *Socket) Writable() bool { return writableNow(s.fd) }

// peekNow returns 0 if a read would return data or the end of the stream.
func peekNow(fd uintptr) syscall.Errno {
	const flags = syscall.MSG_PEEK | syscall.MSG_DONTWAIT
	var b [1]byte
	for {
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), flags, 0, 0)
		if errno != syscall.EINTR {
			return errno
		}
	}
}

// A pollDescriptor is the kernel's struct pollfd.
type pollDescriptor struct {
	fd      int32
	events  int16
	revents int16
}

const pollOut = 0x4 // POLLOUT, which package syscall lacks; it is the same on all architectures of this file

func writableNow(fd int32) bool {
	d := pollDescriptor{fd: fd, events: pollOut}
	var immediately syscall.Timespec
	n, _, errno := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&d)), 1, uintptr(unsafe.Pointer(&immediately)), 0, 0, 0)
	return errno == 0 && n == 1
}
