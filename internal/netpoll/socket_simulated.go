//go:build simulatedpoll

package netpoll

import (
	"net"
	"sync/atomic"

	"github.com/penstock-go/penstock/internal/random"
)

// A descriptor stands for the number that a kernel gives a socket.
type descriptor = *simulatedSocket

// A simulatedSocket is what the kernel knows about a socket.
type simulatedSocket struct {
	conn    SimulatedConn
	aborted atomic.Bool // everything is ready, and fails
	readErr error       // that followed what the last read has returned; of the goroutine that reads

	// Guarded by epoll.mu.
	registered bool
	ready      bool // in epoll.ready
}

const (
	shutWrite = iota
	shutBoth
)

// maxShortBytes bounds reads and writes that end early, so that many end inside a frame's header.
const maxShortBytes = 64

func closeDescriptor(fd descriptor) { _ = fd.conn.Close() }

func (s *Socket) shutdownNow(how int) {
	if how == shutWrite {
		_ = s.fd.conn.CloseWrite()
		return
	}
	s.fd.aborted.Store(true)
	_ = s.fd.conn.Close()
	s.loop.epoll.notify(s)
}

// Order returns the slot.
func (s *Socket) Order() int32 { return s.slot }

// Read returns how many bytes it has read into p, which must not be empty. 0 without an error
// means that there are none yet. Like a TCP socket's, a short read has emptied the socket; like a Unix
// socket's, it may end anywhere.
func (s *Socket) Read(p []byte) (n int, err error) {
	if !s.begin() {
		return 0, net.ErrClosed
	}
	defer s.end()
	if s.fd.readErr != nil {
		return 0, s.fd.readErr
	}
	if !s.tcp {
		return s.fd.conn.TryRead(p[:shortened(len(p))])
	}
	for n < len(p) {
		read, err := s.fd.conn.TryRead(p[n:])
		n += read
		if err != nil {
			s.fd.readErr = err
			if n == 0 {
				return 0, err
			}
			break
		}
		if read == 0 {
			break
		}
	}
	return n, nil
}

// Emptied reports whether a read of n bytes into a buffer of size bytes has emptied the socket.
func (s *Socket) Emptied(n, size int) bool { return s.tcp && n < size }

// Write returns how many bytes of p it has written. If these are fewer than all and there is no
// error, there is no more room yet. At random, it writes less than there is room for, as if the room
// appeared only afterwards, so that an event follows.
func (s *Socket) Write(p []byte) (n int, err error) {
	if !s.begin() {
		return 0, net.ErrClosed
	}
	defer s.end()
	for end := shortened(len(p)); n < end; {
		written, err := s.fd.conn.TryWrite(p[n:end])
		n += written
		if err != nil {
			return n, err
		}
		if written == 0 {
			return n, nil
		}
	}
	if n < len(p) {
		s.loop.epoll.notify(s)
	}
	return n, nil
}

// shortened returns n, or at random a small number from 1 to n.
func shortened(n int) int {
	if n == 0 || random.N(4) > 0 {
		return n
	}
	return 1 + random.N(min(n, maxShortBytes))
}
