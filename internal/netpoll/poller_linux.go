//go:build linux && !386 && !s390x

package netpoll

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/penstock-go/penstock/errors"
)

// A Poller distributes sockets among event loops, of which there is one per processor: if GOMAXPROCS
// changes, sockets that are attached afterwards are distributed among more or fewer loops, and the
// others stay where they are. A loop has goroutines only while it has sockets. The methods are safe for
// concurrent use.
type Poller struct {
	next   atomic.Uint32
	groups []group // as many as GOMAXPROCS can usefully be
}

// A group is the sockets of one loop.
type group struct {
	mu   sync.Mutex
	loop *loop // nil while there are no sockets

	_ [48]byte // keeps groups on different cache lines
}

// NewPoller returns a poller.
func NewPoller() *Poller {
	return &Poller{groups: make([]group, max(runtime.NumCPU(), runtime.GOMAXPROCS(0)))}
}

// Loops returns the highest number of loops, at least 1.
func (p *Poller) Loops() int { return len(p.groups) }

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

// add registers a socket with the next loop.
func (p *Poller) add(s *Socket, w Waiter) error {
	index := p.next.Add(1) % uint32(min(runtime.GOMAXPROCS(0), len(p.groups)))
	s.index = uint8(index)
	return p.groups[index].add(s, w)
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

// add registers a socket with the group's loop, which it creates if there is none.
func (g *group) add(s *Socket, w Waiter) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.loop == nil {
		l, err := newLoop()
		if err != nil {
			return err
		}
		g.loop = l
	}
	s.group, s.loop, s.slot = g, g.loop, g.loop.slots.add(w)
	event := s.event()
	if err := syscall.EpollCtl(s.loop.fd, syscall.EPOLL_CTL_ADD, int(s.fd), &event); err != nil {
		g.releaseLocked(s)
		return err
	}
	return nil
}

// event returns what the socket is registered for. Writable is always part of it, so that ReportAgain
// is followed by an event.
func (s *Socket) event() syscall.EpollEvent {
	return syscall.EpollEvent{
		Events: syscall.EPOLLIN | syscall.EPOLLOUT | syscall.EPOLLPRI | syscall.EPOLLRDHUP | edgeTriggered,
		Fd:     s.slot,
	}
}

const edgeTriggered = 1 << 31 // syscall.EPOLLET is negative

// unregister and release undo add.
func (g *group) unregister(s *Socket) {
	_ = syscall.EpollCtl(s.loop.fd, syscall.EPOLL_CTL_DEL, int(s.fd), nil)
}

// release releases the slot of a socket, and the loop with the last one.
func (g *group) release(s *Socket) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.releaseLocked(s)
}

func (g *group) releaseLocked(s *Socket) {
	if s.loop.slots.remove(s.slot) {
		s.loop.close()
		g.loop = nil
	}
}

// slots maps the numbers in epoll events to waiters.
type slots struct {
	mu      sync.Mutex
	waiters []Waiter // nil if the slot is free
	unused  []int32
}

func (s *slots) add(w Waiter) (slot int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.unused); n > 0 {
		slot, s.unused = s.unused[n-1], s.unused[:n-1]
		s.waiters[slot] = w
		return slot
	}
	s.waiters = append(s.waiters, w)
	return int32(len(s.waiters) - 1)
}

// remove frees a slot, and reports whether all are free. An event in flight may still reach the
// next waiter of the slot, which finds nothing to do.
func (s *slots) remove(slot int32) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters[slot] = nil
	s.unused = append(s.unused, slot)
	return len(s.unused) == len(s.waiters)
}
