//go:build linux && !386 && !s390x && !simulatedpoll

package netpoll

import (
	"os"
	"syscall"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// An epoll is an edge-triggered epoll instance that waits in Go's poller.
type epoll struct {
	fd   int
	file *os.File
	raw  syscall.RawConn
}

// An event is what now returns: Fd is the slot of a socket.
type event = syscall.EpollEvent

func (e *epoll) open() error {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		return errors.Join(err, syscall.Close(fd))
	}
	e.fd, e.file = fd, os.NewFile(uintptr(fd), "epoll")
	if e.raw, err = e.file.SyscallConn(); err == nil {
		err = e.file.SetReadDeadline(time.Time{}) // fails if Go's poller does not accept the descriptor
	}
	if err != nil {
		return errors.Join(err, e.file.Close())
	}
	return nil
}

func (e *epoll) close() { _ = e.file.Close() }

// wait calls polls, and again whenever there are events, until it returns true. The error says that the
// instance is closed.
func (e *epoll) wait(polls func(fd uintptr) bool) error { return e.raw.Read(polls) }

// now returns how many events are pending, without waiting for any.
func (*epoll) now(fd uintptr, events []event) int { return epollNow(fd, events) }

// register lets the instance report events of s, beginning with what it is ready for.
func (e *epoll) register(s *Socket) error { return e.control(syscall.EPOLL_CTL_ADD, s) }

// reportAgain lets the instance report again what s is ready for.
func (e *epoll) reportAgain(s *Socket) error { return e.control(syscall.EPOLL_CTL_MOD, s) }

// control registers all events. Writable is always one of them, so that reportAgain is followed by an event.
func (e *epoll) control(op int, s *Socket) error {
	event := syscall.EpollEvent{
		Events: syscall.EPOLLIN | syscall.EPOLLOUT | syscall.EPOLLPRI | syscall.EPOLLRDHUP | edgeTriggered,
		Fd:     s.slot,
	}
	return syscall.EpollCtl(e.fd, op, int(s.fd), &event)
}

const edgeTriggered = 1 << 31 // syscall.EPOLLET is negative

// unregister undoes register.
func (e *epoll) unregister(s *Socket) {
	_ = syscall.EpollCtl(e.fd, syscall.EPOLL_CTL_DEL, int(s.fd), nil)
}

func eventsOf(e uint32) (events Events) {
	if e&^syscall.EPOLLOUT != 0 {
		events = Readable
	}
	if e&(syscall.EPOLLOUT|syscall.EPOLLHUP|syscall.EPOLLERR) != 0 {
		events |= Writable
	}
	if e&^(syscall.EPOLLIN|syscall.EPOLLOUT) != 0 {
		events |= HangupOrUrgent
	}
	return events
}
