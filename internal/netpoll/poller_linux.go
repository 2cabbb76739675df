//go:build linux && !386 && !s390x

package netpoll

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A Poller calls waiters when their sockets become readable, so that none of them needs
// a goroutine. It is an edge-triggered epoll instance (man 7 epoll) that itself waits
// in Go's poller, on one goroutine that lives while there are sockets. The sockets
// stay in Go's poller as well, for Socket.Read and Socket.Write. The zero
// Poller is ready to use; it must not be copied. Its methods are safe for concurrent use.
type Poller struct {
	mu      sync.Mutex
	epoll   *os.File // nil while there are no sockets
	fd      int      // of epoll
	waiters []Waiter // by slot; nil if the slot is free
	free    []int32  // slots
}

// Add makes the poller call w.Readable until Remove. It fails if the system accepts no
// more sockets.
func (p *Poller) Add(w Waiter, s *Socket) (slot int32, err error) {
	slot, epoll, err := p.occupy(w)
	if err != nil {
		return 0, err
	}
	event := syscall.EpollEvent{
		Events: syscall.EPOLLIN | syscall.EPOLLPRI | syscall.EPOLLRDHUP | edgeTriggered,
		Fd:     slot,
	}
	controlErr := s.conn.Control(func(fd uintptr) {
		err = syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, int(fd), &event)
	})
	if err = errors.Join(controlErr, err); err != nil {
		p.Remove(slot)
	}
	return slot, err
}

// occupy returns a slot. A slot in use keeps the epoll instance open.
func (p *Poller) occupy(w Waiter) (slot int32, epoll int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.epoll == nil {
		if err := p.open(); err != nil {
			return 0, 0, err
		}
	}
	if n := len(p.free); n > 0 {
		slot, p.free = p.free[n-1], p.free[:n-1]
		p.waiters[slot] = w
	} else {
		slot = int32(len(p.waiters))
		p.waiters = append(p.waiters, w)
	}
	return slot, p.fd, nil
}

const edgeTriggered = 1 << 31 // syscall.EPOLLET is negative

func (p *Poller) open() error {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		return errors.Join(err, syscall.Close(fd))
	}
	epoll := os.NewFile(uintptr(fd), "epoll")
	raw, err := epoll.SyscallConn()
	if err == nil {
		err = epoll.SetReadDeadline(time.Time{}) // fails if Go's poller does not accept the descriptor
	}
	if err != nil {
		return errors.Join(err, epoll.Close())
	}
	p.epoll, p.fd = epoll, fd
	go p.run(raw)
	return nil
}

// Remove undoes Add. The caller must close the socket afterwards. An event in flight
// may still reach the next waiter of the slot, which finds nothing to read.
func (p *Poller) Remove(slot int32) {
	if epoll := p.vacate(slot); epoll != nil {
		_ = epoll.Close()
	}
}

// vacate returns the epoll instance if the slot was the last one in use.
func (p *Poller) vacate(slot int32) *os.File {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiters[slot] = nil
	p.free = append(p.free, slot)
	if len(p.free) < len(p.waiters) {
		return nil
	}
	epoll := p.epoll
	p.epoll, p.waiters, p.free = nil, nil, nil
	return epoll
}

// eventBatch is how many goroutines are woken before the poller yields. The fewer they
// are, the sooner the first one is reused, with a stack that is still in the
// processor's cache.
const eventBatch = 16

// run delivers events until the epoll instance is closed.
func (p *Poller) run(raw syscall.RawConn) {
	var events [eventBatch]syscall.EpollEvent
	_ = raw.Read(func(fd uintptr) bool {
		for {
			n := epollNow(fd, events[:])
			for _, e := range events[:n] {
				if w := p.waiter(e.Fd); w != nil {
					w.Readable(e.Events&^syscall.EPOLLIN != 0)
				}
			}
			if n < len(events) {
				return false
			}
			runtime.Gosched()
		}
	})
}

func (p *Poller) waiter(slot int32) Waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if int(slot) >= len(p.waiters) {
		return nil // an event of an earlier epoll instance
	}
	return p.waiters[slot]
}
