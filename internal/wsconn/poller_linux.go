package wsconn

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/penstock-go/penstock/errors"
)

// A Poller tells parked connections that there is something to read, so that none of them needs
// a goroutine. It is an edge-triggered epoll instance (man 7 epoll) that itself waits in Go's
// poller, with one goroutine, while there are connections. Sockets stay in Go's poller, too, for
// whatever has to wait for one of them. The zero Poller is ready to use; it must not be copied.
type Poller struct {
	mu    sync.Mutex
	epoll *os.File // nil while there are no connections
	fd    int      // of epoll
	conns []*Conn  // by slot; nil if it is free
	free  []int32  // slots
}

// add makes the poller call c.readable from now on, or fails if the system does not want more.
func (p *Poller) add(c *Conn, raw syscall.RawConn) (slot int32, err error) {
	slot, epoll, err := p.occupy(c)
	if err != nil {
		return 0, err
	}
	event := syscall.EpollEvent{Events: syscall.EPOLLIN | syscall.EPOLLRDHUP | edgeTriggered, Fd: slot}
	controlErr := raw.Control(func(fd uintptr) {
		err = syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, int(fd), &event)
	})
	if err = errors.Join(controlErr, err); err != nil {
		p.remove(slot)
	}
	return slot, err
}

// occupy returns a slot, which keeps the epoll instance open.
func (p *Poller) occupy(c *Conn) (slot int32, epoll int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.epoll == nil {
		if err := p.open(); err != nil {
			return 0, 0, err
		}
	}
	if n := len(p.free); n > 0 {
		slot, p.free = p.free[n-1], p.free[:n-1]
		p.conns[slot] = c
	} else {
		slot = int32(len(p.conns))
		p.conns = append(p.conns, c)
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
		err = epoll.SetReadDeadline(time.Time{}) // fails if Go's poller does not know it
	}
	if err != nil {
		return errors.Join(err, epoll.Close())
	}
	p.epoll, p.fd = epoll, fd
	go p.run(raw)
	return nil
}

// remove undoes add, after which the socket must be closed. An event that is on its way may
// still reach whoever gets the slot next, and finds nothing.
func (p *Poller) remove(slot int32) {
	if epoll := p.vacate(slot); epoll != nil {
		_ = epoll.Close()
	}
}

// vacate returns what has become useless.
func (p *Poller) vacate(slot int32) *os.File {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[slot] = nil
	p.free = append(p.free, slot)
	if len(p.free) < len(p.conns) {
		return nil
	}
	epoll := p.epoll
	p.epoll, p.conns, p.free = nil, nil, nil
	return epoll
}

// eventsAtOnce is how many goroutines are woken before they get a turn. The fewer they are, the
// sooner the first is used again, with a stack that is still in the processor's cache.
const eventsAtOnce = 16

// run passes events on until the epoll instance is closed.
func (p *Poller) run(raw syscall.RawConn) {
	var events [eventsAtOnce]syscall.EpollEvent
	_ = raw.Read(func(fd uintptr) bool {
		for {
			n := epollNow(fd, events[:])
			for _, e := range events[:n] {
				if c := p.conn(e.Fd); c != nil {
					c.readable(e.Events&^syscall.EPOLLIN != 0)
				}
			}
			if n < len(events) {
				return false
			}
			runtime.Gosched()
		}
	})
}

func (p *Poller) conn(slot int32) *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if int(slot) >= len(p.conns) {
		return nil // an event of an earlier epoll instance
	}
	return p.conns[slot]
}

// epollNow returns how many events there are, without waiting for any.
func epollNow(fd uintptr, events []syscall.EpollEvent) int {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, fd,
		uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}
