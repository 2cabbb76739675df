//go:build (linux && !386 && !s390x) || simulatedpoll

package netpoll

import "sync/atomic"

// A Socket is a kernel stream socket in an event loop. Its calls never wait. One goroutine at a
// time may read and one may write; Abort, CloseWrite and Close may be called at any time. It must
// not be copied.
type Socket struct {
	fd descriptor

	// calls counts the calls that use fd, and has the bits below. The last call after Close closes the
	// descriptor, whose number the system may reuse at once.
	calls atomic.Int32

	slot  int32
	tcp   bool
	index uint8 // of the loop
	group *group
	loop  *loop
}

const (
	socketClosed  = 1 << 30
	socketAborted = 1 << 29
)

// Loop returns the index of the socket's loop, which is less than Poller.Loops.
func (s *Socket) Loop() int { return int(s.index) }

// begin reports whether the descriptor may be used until end.
func (s *Socket) begin() bool {
	for {
		n := s.calls.Load()
		if n >= socketAborted {
			return false
		}
		if s.calls.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (s *Socket) end() {
	if s.calls.Add(-1)&^socketAborted == socketClosed {
		closeDescriptor(s.fd)
	}
}

// Close removes the socket from its loop and closes it, at the latest when all calls have
// returned. It must be called once.
func (s *Socket) Close() {
	s.loop.epoll.unregister(s)
	s.group.release(s)
	if s.calls.Add(socketClosed)&^socketAborted == socketClosed {
		closeDescriptor(s.fd)
	}
}

// Abort ends both directions: Read and Write return net.ErrClosed from then on.
func (s *Socket) Abort() {
	s.shutdown(shutBoth)
	s.calls.Or(socketAborted) // the kernel still accepts what the peer sends after shutdown
}

// CloseWrite ends the outgoing direction: the peer reads the end of the stream behind what
// was written.
func (s *Socket) CloseWrite() { s.shutdown(shutWrite) }

func (s *Socket) shutdown(how int) {
	if s.begin() {
		s.shutdownNow(how)
		s.end()
	}
}

// ReportAgain makes the loop report again what the socket is ready for. It must not follow Close or
// Unwatch, and returns false after Abort.
func (s *Socket) ReportAgain() bool {
	if !s.begin() {
		return false
	}
	defer s.end()
	return s.loop.epoll.reportAgain(s) == nil
}
