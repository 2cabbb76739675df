//go:build simulatedpoll

package netpoll

import (
	"net"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/random"
)

// A SimulatedConn stands for a kernel socket. Its methods are safe for concurrent use, and those
// that it adds to net.Conn return at once and ignore deadlines.
//
// An implementation calls its notify function after each change of what Readiness returns, without a
// lock that one of the methods acquires, and may call it when nothing has changed. As with
// edge-triggered epoll, what is ready is reported once per change.
type SimulatedConn interface { //nolint:interfacebloat // it has what a kernel socket offers
	net.Conn

	// TryRead returns 0 without an error if nothing has arrived yet, and io.EOF at the end.
	TryRead(p []byte) (n int, err error)

	// TryWrite returns fewer bytes than all, without an error, if there is no more room yet.
	TryWrite(p []byte) (n int, err error)

	// CloseWrite ends the outgoing direction.
	CloseWrite() error

	// Readiness reports whether TryRead and TryWrite would not return 0 without an error, and whether
	// the peer has ended its direction or the connection is broken.
	Readiness() (readable, writable, hangup bool)

	// SetNotify replaces the notify function.
	SetNotify(notify func())
}

// Attach moves a connection to an event loop, which reports to w from then on, and initializes
// s with its socket, which owns conn. It fails, and leaves conn as it was, unless conn is a
// SimulatedConn. Whether the socket behaves like a TCP or like a Unix one (see Emptied) is chosen at
// random.
func (p *Poller) Attach(conn net.Conn, w Waiter, s *Socket) error {
	simulated, ok := conn.(SimulatedConn)
	if !ok {
		return errors.ErrUnsupported
	}
	s.fd, s.tcp = &simulatedSocket{conn: simulated}, random.N(2) == 0
	return p.add(s, w)
}
