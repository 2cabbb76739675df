//go:build simulatedpoll

package netpoll

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Pipe returns the two ends of an in-memory connection. Each direction holds capacity bytes that have
// not been read. If capacity is 0, it is like that of net.Pipe: what is written goes to a goroutine that waits in
// Read, and Write returns when all has been read. Waiting is durably blocking in a bubble of
// testing/synctest.
func Pipe(capacity int) (net.Conn, net.Conn) {
	p := &pipe{capacity: capacity}
	p.changed.L = &p.mu
	a, b := &pipeEnd{pipe: p, in: &stream{}, out: &stream{}}, &pipeEnd{pipe: p}
	b.in, b.out, a.peer, b.peer = a.out, a.in, b, a
	return a, b
}

type pipe struct {
	capacity int
	changed  sync.Cond // of what mu guards

	mu sync.Mutex // guards all streams and ends; no notify function is called under it
}

// A stream is one direction of a pipe.
type stream struct {
	unread     []byte
	read       int  // bytes since the beginning
	wanted     int  // by a goroutine that waits in Read
	ended      bool // by its writer
	abandoned  bool // by its reader
	readBy     time.Time
	writtenBy  time.Time
	readTimer  *time.Timer
	writeTimer *time.Timer
}

// A pipeEnd is one end of a pipe. It implements SimulatedConn.
type pipeEnd struct {
	*pipe

	peer      *pipeEnd
	in, out   *stream
	closed    bool
	notify    func() // nil if there is none
	announced readiness
}

// roomLocked returns how many bytes can be written. A goroutine that waits in Read takes those of one write.
func (e *pipeEnd) roomLocked() int {
	if e.capacity == 0 && len(e.out.unread) == 0 {
		return e.out.wanted
	}
	return max(0, e.capacity-len(e.out.unread))
}

// take reads what is there. The lock must be held.
func (s *stream) take(p []byte) (n int) {
	n = copy(p, s.unread)
	s.unread = s.unread[n:]
	s.read += n
	return n
}

// announceAndUnlock wakes all that wait for a change, and calls the notify functions of the ends whose
// readiness has changed. The lock must be held.
func (e *pipeEnd) announceAndUnlock() {
	e.changed.Broadcast()
	ours, theirs := e.changedLocked(), e.peer.changedLocked()
	e.mu.Unlock()
	for _, notify := range []func(){ours, theirs} {
		if notify != nil {
			notify()
		}
	}
}

// changedLocked returns the notify function if it must be called.
func (e *pipeEnd) changedLocked() (notify func()) {
	now := e.readinessLocked()
	if now == e.announced {
		return nil
	}
	e.announced = now
	return e.notify
}

// A readiness is what Readiness returns.
type readiness struct{ readable, writable, hangup bool }

func (e *pipeEnd) readinessLocked() readiness {
	return readiness{
		readable: len(e.in.unread) > 0 || e.in.ended || e.closed,
		writable: e.roomLocked() > 0 || e.writeErrLocked() != nil,
		hangup:   e.in.ended || e.closed,
	}
}

// TryRead implements SimulatedConn.
func (e *pipeEnd) TryRead(p []byte) (int, error) {
	e.mu.Lock()
	defer e.announceAndUnlock()
	n := e.in.take(p)
	switch {
	case e.closed:
		return 0, net.ErrClosed
	case n == 0 && e.in.ended:
		return 0, io.EOF
	}
	return n, nil
}

// TryWrite implements SimulatedConn.
func (e *pipeEnd) TryWrite(p []byte) (int, error) {
	e.mu.Lock()
	defer e.announceAndUnlock()
	if err := e.writeErrLocked(); err != nil {
		return 0, err
	}
	n := min(len(p), e.roomLocked())
	e.out.unread = append(e.out.unread, p[:n]...)
	return n, nil
}

func (e *pipeEnd) writeErrLocked() error {
	switch {
	case e.closed || e.out.ended:
		return net.ErrClosed
	case e.out.abandoned:
		return io.ErrClosedPipe
	}
	return nil
}

// Readiness implements SimulatedConn.
func (e *pipeEnd) Readiness() (readable, writable, hangup bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.readinessLocked()
	return r.readable, r.writable, r.hangup
}

// SetNotify implements SimulatedConn.
func (e *pipeEnd) SetNotify(notify func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notify = notify
}

// Read implements net.Conn.
func (e *pipeEnd) Read(p []byte) (int, error) {
	e.mu.Lock()
	for {
		n := e.in.take(p)
		switch {
		case e.closed:
			e.mu.Unlock()
			return 0, net.ErrClosed
		case n > 0:
			e.in.wanted = 0
			e.announceAndUnlock()
			return n, nil
		case e.in.ended || len(p) == 0:
			e.mu.Unlock()
			return 0, io.EOF
		case expired(e.in.readBy):
			e.in.wanted = 0
			e.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case e.in.wanted != len(p):
			e.in.wanted = len(p)
			e.announceAndUnlock()
			e.mu.Lock()
		default:
			e.changed.Wait()
		}
	}
}

// Write implements net.Conn.
func (e *pipeEnd) Write(p []byte) (n int, err error) {
	e.mu.Lock()
	for n < len(p) && err == nil {
		part := len(p)
		if e.capacity > 0 {
			part = min(len(p)-n, e.roomLocked())
		}
		switch err = e.writeErrLocked(); {
		case err != nil:
		case expired(e.out.writtenBy):
			err = os.ErrDeadlineExceeded
		case part == 0:
			e.changed.Wait()
		default:
			e.out.unread = append(e.out.unread, p[n:n+part]...)
			if n += part; e.capacity == 0 {
				err = e.awaitReadLocked()
				n -= len(e.out.unread)
				e.out.unread = nil
				continue
			}
			e.announceAndUnlock()
			e.mu.Lock()
		}
	}
	e.mu.Unlock()
	return n, err
}

// awaitReadLocked waits until the peer has read what has been written, or returns an error.
func (e *pipeEnd) awaitReadLocked() error {
	end := e.out.read + len(e.out.unread)
	e.announceAndUnlock()
	e.mu.Lock()
	for e.out.read < end {
		if err := e.writeErrLocked(); err != nil {
			return err
		}
		if expired(e.out.writtenBy) {
			return os.ErrDeadlineExceeded
		}
		e.changed.Wait()
	}
	return nil
}

// CloseWrite implements SimulatedConn.
func (e *pipeEnd) CloseWrite() error {
	e.mu.Lock()
	e.out.ended = true
	e.announceAndUnlock()
	return nil
}

// Close implements net.Conn.
func (e *pipeEnd) Close() error {
	e.mu.Lock()
	e.closed, e.out.ended, e.in.abandoned = true, true, true
	stopTimer(e.in.readTimer)
	stopTimer(e.out.writeTimer)
	e.announceAndUnlock()
	return nil
}

func stopTimer(timer *time.Timer) {
	if timer != nil {
		timer.Stop()
	}
}

func expired(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// SetDeadline implements net.Conn.
func (e *pipeEnd) SetDeadline(t time.Time) error {
	_ = e.SetReadDeadline(t)
	return e.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (e *pipeEnd) SetReadDeadline(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.in.readBy = t
	e.wakeAtLocked(&e.in.readTimer, t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (e *pipeEnd) SetWriteDeadline(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.out.writtenBy = t
	e.wakeAtLocked(&e.out.writeTimer, t)
	return nil
}

// wakeAtLocked wakes at a time those who wait, unless it is the zero Time.
func (e *pipeEnd) wakeAtLocked(timer **time.Timer, t time.Time) {
	stopTimer(*timer)
	*timer = nil
	e.changed.Broadcast()
	if !t.IsZero() && !e.closed {
		*timer = time.AfterFunc(time.Until(t), e.changed.Broadcast)
	}
}

// A pipeAddr is the address of both ends.
type pipeAddr struct{}

// Network implements net.Addr.
func (pipeAddr) Network() string { return "pipe" }

// String implements net.Addr.
func (pipeAddr) String() string { return "pipe" }

// LocalAddr implements net.Conn.
func (*pipeEnd) LocalAddr() net.Addr { return pipeAddr{} }

// RemoteAddr implements net.Conn.
func (*pipeEnd) RemoteAddr() net.Addr { return pipeAddr{} }
