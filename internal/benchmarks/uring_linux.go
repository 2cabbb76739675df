package main

import (
	"net/http"
	"runtime"
	"syscall"
)

// serveUring is the floor for event loops on io_uring: one goroutine, which has a thread of its own. The
// kernel receives into buffers that it selects, and one system call submits the replies and waits.
func serveUring() (http.Handler, func(int)) {
	l := newUringLoop()
	go func() {
		runtime.LockOSThread()
		l.open(cooperative | oneThread)
		l.run(func() {
			if l.ring.enter(0); !l.ring.pending() {
				l.ring.enter(1)
			}
		})
	}()
	return l.handler(), l.publish
}

// serveUringHandover does the same as a loop must that another goroutine can take over: any thread uses
// the ring, and it waits in Go's poller, so that it does not occupy a processor.
func serveUringHandover() (http.Handler, func(int)) {
	l := newUringLoop()
	l.open(cooperative)
	waiting := goPoller(l.ring.fd)
	poll := func(uintptr) bool { l.ring.enter(0); return l.ring.pending() }
	go l.run(func() { check(waiting.Read(poll)) })
	return l.handler(), l.publish
}

// A uringLoop uses its epoll instance for the first request of each connection.
type uringLoop struct {
	*epollLoop
	ring    *ring
	stopped []int // connections of which the kernel no longer receives
}

const (
	replyRoom  = 256 << 10 // of a round; the kernel has the address of replies until they are submitted
	failedSend = 1 << 32   // marks completions of sends
)

func newUringLoop() *uringLoop {
	l := &uringLoop{epollLoop: newEpollLoop()}
	l.out = make([]byte, 0, replyRoom)
	return l
}

// ringUsable returns an error if the contenders of this file cannot run here.
func ringUsable() error {
	r, err := newRing(cooperative | oneThread)
	if err != nil {
		return err
	}
	return syscall.Close(r.fd)
}

func (l *uringLoop) open(flags uint32) {
	var err error
	l.ring, err = newRing(flags)
	check(err)
}

// watch lets the ring report when there are new connections with requests.
func (l *uringLoop) watch() {
	s := l.ring.submit(operationPoll, l.fd, uint64(l.fd))
	s.options, s.length = syscall.EPOLLIN, pollMultishot
}

func (l *uringLoop) run(wait func()) {
	l.watch()
	for {
		wait()
		l.out = l.out[:0]
		for c, ok := l.ring.next(); ok; c, ok = l.ring.next() {
			l.complete(c)
		}
		for _, fd := range l.stopped {
			l.receive(fd)
		}
		l.stopped = l.stopped[:0]
	}
}

func (l *uringLoop) complete(c completion) {
	fd := int(uint32(c.data))
	switch {
	case fd == l.fd:
		l.receiveNew()
		if c.flags&hasMore == 0 {
			l.watch()
		}
	case c.data&failedSend != 0:
		_ = syscall.Shutdown(fd, syscall.SHUT_RDWR) // the receive then ends
	case c.flags&hasBuffer != 0:
		id := uint16(c.flags >> bufferShift)
		l.reply(fd, l.ring.buffers[id][:c.result])
		l.ring.offer(id)
		if c.flags&hasMore == 0 {
			l.stopped = append(l.stopped, fd)
		}
	case c.result == -int32(syscall.ENOBUFS):
		l.stopped = append(l.stopped, fd)
	default:
		l.ring.enter(0) // replies to it must not reach another connection that gets its number
		l.remove(fd)
	}
}

// receiveNew lets the kernel receive on new connections.
func (l *uringLoop) receiveNew() {
	events := make([]syscall.EpollEvent, 128)
	for n := l.now(events); n > 0; n = l.now(events) {
		for _, event := range events[:n] {
			check(syscall.EpollCtl(l.fd, syscall.EPOLL_CTL_DEL, int(event.Fd), nil))
			l.receive(int(event.Fd))
		}
	}
}

func (l *uringLoop) receive(fd int) {
	s := l.ring.submit(operationReceive, fd, uint64(fd))
	s.flags, s.priority = selectBuffer, receiveMultishot
}

// reply submits the replies to the requests in p, or in what is left of earlier ones and p.
func (l *uringLoop) reply(fd int, p []byte) {
	if rest := l.rest[fd]; len(rest) > 0 {
		p = append(rest, p...)
	}
	if cap(l.out)-len(l.out) < 2*len(p) { // replies are as long as requests
		l.ring.enter(0)
		l.out = l.out[:0]
	}
	start := len(l.out)
	if !l.answer(fd, p) {
		_ = syscall.Shutdown(fd, syscall.SHUT_RDWR)
		return
	}
	if out := l.out[start:]; len(out) > 0 {
		l.ring.send(fd, out, uint64(fd)|failedSend)
	}
}
