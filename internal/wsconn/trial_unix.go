//go:build unix && !(linux && !386 && !s390x)

package wsconn

import "syscall"

func tryRead(fd uintptr, p []byte) (int, error) { return try(syscall.Read, fd, p) }

func tryWrite(fd uintptr, p []byte) (int, error) { return try(syscall.Write, fd, p) }

func try(call func(int, []byte) (int, error), fd uintptr, p []byte) (int, error) {
	for {
		n, err := call(int(fd), p)
		if err != syscall.EINTR { //nolint:errorlint // an errno is not wrapped
			return n, err
		}
	}
}
