//go:build simulatedpoll

package netpoll

import (
	"net"
	"slices"
	"sync"

	"github.com/penstock-go/penstock/internal/random"
)

// An epoll stands for an edge-triggered epoll instance that waits in Go's poller. It waits for
// channels only, so that its goroutine is durably blocked in a bubble of testing/synctest. Which
// sockets it reports, in which order, and what it reports in vain is chosen at random.
type epoll struct {
	changed chan struct{} // receives if ready has grown
	closed  chan struct{}

	mu      sync.Mutex
	sockets []*Socket // that are registered
	ready   []*Socket // that may be ready for something that has not been reported
}

// An event is what now returns: Fd is the slot of a socket.
type event struct {
	Events Events
	Fd     int32
}

// spuriousInterval is in how many calls of now that report something one event is reported in vain.
const spuriousInterval = 16

func (e *epoll) open() error {
	e.changed, e.closed = make(chan struct{}, 1), make(chan struct{})
	return nil
}

func (e *epoll) close() { close(e.closed) }

// wait calls polls, and again whenever a socket is ready, until it returns true. The error says that the
// instance is closed.
func (e *epoll) wait(polls func(fd uintptr) bool) error {
	for {
		select {
		case <-e.closed:
			return net.ErrClosed
		default:
		}
		if polls(0) {
			return nil
		}
		select {
		case <-e.closed:
		case <-e.changed:
		}
	}
}

// now returns how many events are pending, without waiting for any.
func (e *epoll) now(_ uintptr, events []event) (n int) {
	for n == 0 {
		taken := e.take(len(events) - 1)
		if len(taken) == 0 {
			return 0
		}
		for _, s := range taken {
			if reported := s.fd.events(); reported != 0 {
				events[n] = event{reported, s.slot}
				n++
			}
		}
	}
	if random.N(spuriousInterval) == 0 {
		n += e.spurious(events[n:])
	}
	return n
}

// take removes some of the sockets that are ready, at most limit.
func (e *epoll) take(limit int) []*Socket {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.ready) == 0 {
		return nil
	}
	random.Shuffle(len(e.ready), func(i, j int) { e.ready[i], e.ready[j] = e.ready[j], e.ready[i] })
	n := min(limit, 1+random.N(len(e.ready)))
	taken := slices.Clone(e.ready[:n])
	e.ready = slices.Delete(e.ready, 0, n)
	for _, s := range taken {
		s.fd.ready = false
	}
	return taken
}

// spurious adds an event of any socket, whether or not it is ready.
func (e *epoll) spurious(events []event) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.sockets) == 0 {
		return 0
	}
	events[0] = event{1 + random.N(Readable|Writable), e.sockets[random.N(len(e.sockets))].slot}
	return 1
}

// events returns what the socket is ready for. A hangup makes reading and writing possible: they fail.
func (s *simulatedSocket) events() (events Events) {
	readable, writable, hangup := s.conn.Readiness()
	hangup = hangup || s.aborted.Load()
	if readable || hangup {
		events = Readable
	}
	if writable || hangup {
		events |= Writable
	}
	if hangup {
		events |= HangupOrUrgent
	}
	return events
}

// register lets the instance report events of s, beginning with what it is ready for.
func (e *epoll) register(s *Socket) error {
	e.mu.Lock()
	s.fd.registered = true
	e.sockets = append(e.sockets, s)
	e.mu.Unlock()
	s.fd.conn.SetNotify(func() { e.notify(s) })
	e.notify(s)
	return nil
}

// reportAgain lets the instance report again what s is ready for.
func (e *epoll) reportAgain(s *Socket) error {
	e.notify(s)
	return nil
}

// unregister undoes register.
func (e *epoll) unregister(s *Socket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.fd.registered, s.fd.ready = false, false
	isThis := func(other *Socket) bool { return other == s }
	e.sockets = slices.DeleteFunc(e.sockets, isThis)
	e.ready = slices.DeleteFunc(e.ready, isThis)
}

// notify notes that the readiness of s may have changed.
func (e *epoll) notify(s *Socket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !s.fd.registered || s.fd.ready {
		return
	}
	s.fd.ready = true
	e.ready = append(e.ready, s)
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

func eventsOf(e Events) Events { return e }
