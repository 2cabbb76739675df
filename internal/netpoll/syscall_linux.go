//go:build linux && !386 && !s390x && !simulatedpoll

package netpoll

import (
	"syscall"
	"unsafe"
)

// These system calls return at once, with EAGAIN if there is nothing to do, so they
// are raw: announcing them to the scheduler, as package syscall does, wakes the
// runtime's monitor when the program was idle, which may then take the processor away
// from a call that is about to return. MSG_DONTWAIT makes that true for every socket.
// A raw call that blocked would occupy its processor, and O_NONBLOCK is no protection:
// it belongs to the open file description, so any process that shares the description
// (a child process, a dup in C code) can clear it.

func recvNow(fd uintptr, p []byte) (int, error) { return callNow(syscall.SYS_RECVFROM, fd, p) }

func sendNow(fd uintptr, p []byte) (int, error) { return callNow(syscall.SYS_SENDTO, fd, p) }

// callNow makes a system call with p, which must not be empty.
func callNow(call, fd uintptr, p []byte) (int, error) {
	const flags = syscall.MSG_DONTWAIT | syscall.MSG_NOSIGNAL
	for {
		n, _, errno := syscall.RawSyscall6(call, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), flags, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}

// epollNow returns how many events are pending, without waiting for any.
func epollNow(fd uintptr, events []syscall.EpollEvent) int {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, fd,
		uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}
