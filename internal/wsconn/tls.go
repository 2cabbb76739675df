package wsconn

import (
	"crypto/tls"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/netpoll"
)

// A tlsConn is a TLS connection over TCP that an event loop watches, so that it can be parked.
//
// Its socket stays in Go's poller, because crypto/tls reads and writes it through the net.Conn with which
// net/http has created it. Reading in the loop must not wait, though, and parking requires that
// nothing is left to read in crypto/tls or in the kernel. Read deadlines answer the first question: after
// a deadline in the past, tls.Conn.Read returns what crypto/tls has received completely, or
// os.ErrDeadlineExceeded. That error is temporary, and crypto/tls continues after it even inside a
// record; net/http depends on that as well, when it hands over a connection. For the kernel, there is
// netpoll.Socket.Readable.
type tlsConn struct {
	*tls.Conn
	tcp *net.TCPConn

	// These belong to the goroutine with the right to read.
	drained  bool  // crypto/tls has no complete record
	reported bool  // the event loop has reported that there is something to read, and nothing has been read since
	err      error // the final error of reading; not every error of crypto/tls is returned twice

	room int // bytes that can be written without waiting; belongs to the writing goroutine

	aborted atomic.Bool

	mu      sync.Mutex
	writeBy time.Duration // the write deadline that is set, since Engine.start; guarded by mu
}

// recordWait is how long a read waits for the rest of a record that has begun to arrive. An event
// loop is taken over meanwhile. After that, the loop reports when more has arrived.
const recordWait = time.Millisecond

// maxTLSWriteNow is the longest batch that is written without a goroutine that can wait. A
// writable socket has room for that (see netpoll.Socket.Writable), unless the kernel runs out
// of memory for sockets.
const maxTLSWriteNow = 4 << 10

// minTLSWriteCost is what a short batch counts for, because the kernel's memory for it is longer.
const minTLSWriteCost = 1 << 10

// watchTLS lets an event loop watch a connection, and reports whether it can.
func (c *Conn) watchTLS() bool {
	conn, ok := c.sock.conn.(*tls.Conn)
	if !ok {
		return false
	}
	tcp, ok := conn.NetConn().(*net.TCPConn)
	if !ok {
		return false
	}
	c.sock.conn = &tlsConn{Conn: conn, tcp: tcp}
	if err := c.opts.Engine.poller.Watch(tcp, c, &c.sock.raw); err != nil {
		c.sock.conn = conn
		return false
	}
	return true
}

// tls returns the TLS connection if an event loop watches it, and nil otherwise.
func (s *socket) tls() *tlsConn {
	t, _ := s.conn.(*tlsConn)
	return t
}

// tryFillTLS is tryFill. It may wait for recordWait.
func (c *Conn) tryFillTLS(t *tlsConn) (bool, error) {
	for {
		if filled, err := c.fillDecrypted(t); filled || err != nil {
			return filled, err
		}
		if !t.reported || t.aborted.Load() {
			if readable, err := c.tlsReadable(t); !readable || err != nil {
				return false, err
			}
		}
		t.reported = false
		now := time.Now()
		_ = t.SetReadDeadline(now.Add(recordWait)) // if it fails, so does the read
		t.drained = false
		if filled, err := c.readTLS(t, now); filled || err != nil {
			return filled, err
		}
	}
}

// fillDecrypted reads what crypto/tls has received, but nothing from the kernel.
func (c *Conn) fillDecrypted(t *tlsConn) (bool, error) {
	if t.drained || t.err != nil {
		return false, t.err
	}
	_ = t.SetReadDeadline(time.Unix(1, 0)) // in the past; if it fails, so does the read
	return c.readTLS(t, time.Now())
}

// drainTLS reads what crypto/tls has received. If that is nothing, it sets kernelEmpty if there is
// nothing in the kernel either.
func (c *Conn) drainTLS(t *tlsConn) (filled bool, err error) {
	if filled, err = c.fillDecrypted(t); filled || err != nil {
		return filled, err
	}
	readable, err := c.tlsReadable(t)
	c.sock.kernelEmpty = !readable
	return false, err
}

func (c *Conn) tlsReadable(t *tlsConn) (bool, error) {
	if t.aborted.Load() {
		t.err = net.ErrClosed
		return false, t.err
	}
	var readable bool
	readable, t.err = c.sock.raw.Readable()
	return readable, t.err
}

// readTLS reports whether it has read something before the deadline.
func (c *Conn) readTLS(t *tlsConn, now time.Time) (bool, error) {
	s := &c.sock
	if c.writer.Load() == writerIdle {
		// Reading may write: the answer to a key update (RFC 8446, section 4.6.3) or an alert. A write
		// deadline that has passed would make it fail, and with it all later writes.
		c.extendWriteDeadline(t, now)
	}
	chunk := netpoll.NewBuffer(netpoll.ClassFor(c.opts.BufferBytes))
	n, err := t.Read(chunk.Bytes[:cap(chunk.Bytes)])
	timedOut := errors.Is(err, os.ErrDeadlineExceeded)
	if !timedOut {
		t.err = err
	}
	if n == 0 {
		chunk.Release()
		t.drained = timedOut
		return false, t.err
	}
	s.readsThisTurn = max(s.readsThisTurn, s.readsThisTurn+1)
	c.accept(chunk, n)
	return true, nil
}

// tryWriteTLS is tryWrite. A record must be written completely, so it writes all of p or nothing.
func (c *Conn) tryWriteTLS(t *tlsConn, p []byte, now time.Time) (int, error) {
	if !t.hasRoom(&c.sock.raw, len(p)) {
		return 0, nil
	}
	return c.writeTLS(t, p, now)
}

// hasRoom reports whether n bytes can be written without waiting. It asks the kernel once for up to
// maxTLSWriteNow bytes.
func (t *tlsConn) hasRoom(raw *netpoll.Socket, n int) bool {
	cost := max(n, minTLSWriteCost)
	if n > maxTLSWriteNow || t.room < cost && !raw.Writable() {
		return false
	}
	if t.room < cost {
		t.room = maxTLSWriteNow
	}
	t.room -= cost
	return true
}

// writeWaitingTLS writes a batch for which there was no room. It is for a goroutine of its own.
func (c *Conn) writeWaitingTLS(t *tlsConn, b *batch) {
	b.written, b.err = c.writeTLS(t, b.bytes, time.Now())
	b.blocked = false
	c.writeFailed = b.err != nil
}

// writeTLS writes all of p. It may wait for Options.WriteTimeout.
func (c *Conn) writeTLS(t *tlsConn, p []byte, now time.Time) (int, error) {
	c.extendWriteDeadline(t, now)
	return t.Write(p)
}

// extendWriteDeadline sets the write deadline, unless half of Options.WriteTimeout is left.
func (c *Conn) extendWriteDeadline(t *tlsConn, now time.Time) {
	since := c.sinceStart(now)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.writeBy-since <= c.opts.WriteTimeout/2 {
		t.writeBy = since + c.opts.WriteTimeout
		_ = t.SetWriteDeadline(now.Add(c.opts.WriteTimeout)) // if it fails, so does the write
	}
}

// endStream ends the outgoing direction behind the last frame, which has been written. It sends a
// close_notify (RFC 8446, section 6.1) unless that would have to wait.
func (t *tlsConn) endStream(raw *netpoll.Socket) {
	if raw.Writable() {
		_ = t.CloseWrite() // on failure the peer sees the end without it
	}
	_ = t.tcp.CloseWrite()
}

// abort ends both directions. The descriptor stays open until close.
func (t *tlsConn) abort() {
	t.aborted.Store(true)
	_ = t.tcp.CloseWrite() // both fail if the peer has closed the connection
	_ = t.tcp.CloseRead()
}

// close closes the socket. Unlike tls.Conn.Close, it never waits.
func (t *tlsConn) close(raw *netpoll.Socket) {
	raw.Unwatch(t.tcp)
	_ = t.tcp.Close()
}
