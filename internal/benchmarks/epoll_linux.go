package main

import (
	"cmp"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"syscall"
	"unsafe"
)

// serveEpoll is the floor for event loops: one goroutine waits for all connections, reads one,
// answers all requests that it has read, and writes once.
func serveEpoll() (http.Handler, func(int)) {
	l := newEpollLoop()
	go l.run()
	return l.handler(), l.publish
}

func newEpollLoop() *epollLoop {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	check(err)
	return &epollLoop{fd: fd, rest: map[int][]byte{}, in: make([]byte, 16<<10)}
}

func (l *epollLoop) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrade(w, r)
		if err == nil {
			err = l.add(conn)
		}
		check(err)
	})
}

type epollLoop struct {
	fd int

	// Only run uses these.
	rest map[int][]byte // incomplete frames by descriptor
	in   []byte
	out  []byte

	mu  sync.Mutex // guards fds
	fds []int      // ascending
}

// add takes a connection out of Go's poller.
func (l *epollLoop) add(conn net.Conn) error {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	var fd int
	var failed error
	err = raw.Control(func(original uintptr) { fd, failed = syscall.Dup(int(original)) })
	if err := cmp.Or(err, failed, conn.Close()); err != nil {
		return err
	}
	l.mu.Lock()
	at, _ := slices.BinarySearch(l.fds, fd)
	l.fds = slices.Insert(l.fds, at, fd)
	l.mu.Unlock()
	return syscall.EpollCtl(l.fd, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)})
}

// run waits in Go's poller when there are no events, so that it does not occupy a processor.
func (l *epollLoop) run() {
	waiting := goPoller(l.fd)
	events := make([]syscall.EpollEvent, 128)
	for {
		var n int
		check(waiting.Read(func(uintptr) bool {
			n = l.now(events)
			return n > 0
		}))
		for _, event := range events[:n] {
			if !l.serve(int(event.Fd)) {
				l.remove(int(event.Fd))
			}
		}
	}
}

// now returns how many events are pending, without waiting for any.
func (l *epollLoop) now(events []syscall.EpollEvent) int {
	return max(rawCall(syscall.SYS_EPOLL_PWAIT, l.fd, unsafe.Pointer(&events[0]), len(events), 0), 0)
}

// goPoller adds a descriptor to Go's poller, and returns what waits for it.
func goPoller(fd int) syscall.RawConn {
	check(syscall.SetNonblock(fd, true)) // otherwise os.NewFile does not add it
	waiting, err := os.NewFile(uintptr(fd), "").SyscallConn()
	check(err)
	return waiting
}

// serve reads once. It returns false if the connection has ended.
func (l *epollLoop) serve(fd int) bool {
	buffered := copy(l.in, l.rest[fd])
	n := rawCall(syscall.SYS_RECVFROM, fd, unsafe.Pointer(&l.in[buffered]), len(l.in)-buffered, syscall.MSG_DONTWAIT)
	if n <= 0 {
		return false
	}
	l.out = l.out[:0]
	if !l.answer(fd, l.in[:buffered+n]) {
		return false
	}
	return len(l.out) == 0 || send(fd, l.out)
}

// answer appends the replies to out, and keeps what is incomplete. It returns false if p is invalid.
func (l *epollLoop) answer(fd int, p []byte) bool {
	out, done, err := answerFrames(l.out, p)
	if err != nil {
		return false
	}
	l.out = out
	switch {
	case done < len(p):
		l.rest[fd] = slices.Clone(p[done:])
	case len(l.rest) > 0:
		delete(l.rest, fd)
	}
	return true
}

func (l *epollLoop) remove(fd int) {
	delete(l.rest, fd)
	l.mu.Lock()
	defer l.mu.Unlock()
	at, _ := slices.BinarySearch(l.fds, fd)
	l.fds = slices.Delete(l.fds, at, at+1)
	_ = syscall.Close(fd)
}

func (l *epollLoop) publish(n int) {
	frames := publishedFrame(n)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, fd := range l.fds {
		send(fd, frames)
	}
}

// send reports whether the kernel has taken all of p.
func send(fd int, p []byte) bool {
	return rawCall(syscall.SYS_SENDTO, fd, unsafe.Pointer(&p[0]), len(p), syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL) == len(p)
}

// rawCall makes a system call that does not wait. It returns -1 if the call fails.
func rawCall(call uintptr, fd int, p unsafe.Pointer, n, option int) int {
	got, _, errno := syscall.RawSyscall6(call, uintptr(fd), uintptr(p), uintptr(n), uintptr(option), 0, 0)
	if errno != 0 {
		return -1
	}
	return int(got)
}
