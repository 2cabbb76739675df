//go:build linux && !386 && !s390x

package wsconn

import (
	"syscall"
	"unsafe"
)

// Sockets of package net never block, so their system calls return at once, with EAGAIN
// if there is nothing to do. Announcing such a call to the scheduler, as package syscall
// does, costs more than it brings: it wakes the runtime's monitor when the program was
// idle, which may then take the processor away from a call that is about to return. What
// a call takes meanwhile is what the kernel needs for up to MaxBufferBytes. The calls for
// sockets take a little less than those for all files.

func tryRead(fd uintptr, p []byte) (int, error) { return try(syscall.SYS_RECVFROM, fd, p) }

func tryWrite(fd uintptr, p []byte) (int, error) { return try(syscall.SYS_SENDTO, fd, p) }

// try makes a system call with p, which must not be empty.
func try(call, fd uintptr, p []byte) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall6(call, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), syscall.MSG_NOSIGNAL, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}
