//go:build (linux && !386 && !s390x) || simulatedpoll

package netpoll

import (
	"runtime"
	"sync"
	"sync/atomic"
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

// add registers a socket with the next loop.
func (p *Poller) add(s *Socket, w Waiter) error {
	index := p.next.Add(1) % uint32(min(runtime.GOMAXPROCS(0), len(p.groups)))
	s.index = uint8(index)
	return p.groups[index].add(s, w)
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
	if err := s.loop.epoll.register(s); err != nil {
		g.releaseLocked(s)
		return err
	}
	return nil
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
