package simnet

import (
	"cmp"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// A link is a connection with its two ends: that of the host that has dialed, and that of the listener.
type link struct {
	network *Network
	opened  time.Time
	port    uint16
	ends    [2]*Conn

	mu        sync.Mutex
	changed   sync.Cond // with mu; something was written, read, delivered or closed
	abandoned bool
}

func sortLinks(links []*link) {
	slices.SortFunc(links, func(a, b *link) int {
		return cmp.Or(a.opened.Compare(b.opened), cmp.Compare(a.ends[0].host.name, b.ends[0].host.name), cmp.Compare(a.port, b.port))
	})
}

func newLink(n *Network, source, target *host, port uint16) *link {
	k := &link{network: n, opened: time.Now(), port: port}
	k.changed.L = &k.mu
	from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(source.address, port))
	to := net.TCPAddrFromAddrPort(netip.AddrPortFrom(target.address, listenPort))
	client, server := &Conn{link: k, host: source, local: from, remote: to}, &Conn{link: k, host: target, local: to, remote: from}
	client.peer, server.peer = server, client
	k.ends = [2]*Conn{client, server}
	return k
}

// A Conn is one end of a connection. It implements [net.Conn]; TryRead, TryWrite and Readiness are the calls
// of a socket that never waits. The link's lock guards what is below local and remote.
type Conn struct {
	link          *link
	host          *host
	peer          *Conn
	local, remote net.Addr

	arriving  []segment // on the way to this end, in order
	arrived   []byte    // can be read
	held      int       // bytes of arriving
	ended     bool      // the other end has ended its direction, and that has arrived
	failed    error     // of all calls: the connection was reset
	closed    bool
	writeEnd  bool // CloseWrite or Close was called
	notBefore time.Time
	timer     *time.Timer // delivers the first of arriving
	notify    func()

	readDeadline, writeDeadline deadline
}

// A segment is what one write has sent; its data are nil for the end of the stream.
type segment struct {
	at   time.Time
	data []byte
	err  error // nil, io.EOF or a reset
}

// A deadline is a time after which calls of one kind fail.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) expired() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// LocalAddr returns the address of this host.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address of the other host.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// Read waits for bytes, the end of the stream, an error, or the deadline.
func (c *Conn) Read(p []byte) (int, error) {
	c.link.mu.Lock()
	defer c.link.unlock(c)
	for {
		if c.readDeadline.expired() && !c.closed { // even if there is something to read
			return 0, opError("read", os.ErrDeadlineExceeded)
		}
		n, err := c.readLocked(p)
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		c.link.changed.Wait()
	}
}

// Write waits until all bytes are on their way.
func (c *Conn) Write(p []byte) (n int, err error) {
	delay := c.link.network.delay()
	c.link.mu.Lock()
	defer c.link.unlock(c)
	for {
		if c.writeDeadline.expired() && !c.closed { // even if there is room
			return n, opError("write", os.ErrDeadlineExceeded)
		}
		sent, err := c.writeLocked(p[n:], delay)
		if n += sent; err != nil || n == len(p) {
			return n, err
		}
		c.link.changed.Wait()
	}
}

// TryRead returns 0 without an error if there is nothing to read yet, and io.EOF at the end of the stream.
func (c *Conn) TryRead(p []byte) (int, error) {
	c.link.mu.Lock()
	n, err := c.readLocked(p)
	if n == 0 { // nothing has changed
		c.link.mu.Unlock()
		return 0, err
	}
	c.link.unlock(c)
	return n, err
}

// TryWrite returns how many bytes of p are on their way, fewer than all if there is no more room yet.
func (c *Conn) TryWrite(p []byte) (int, error) {
	delay := c.link.network.delay()
	c.link.mu.Lock()
	defer c.link.unlock(c)
	return c.writeLocked(p, delay)
}

// Readiness reports whether TryRead would return something, whether TryWrite would, and whether the connection was
// reset or the other end has ended its direction.
func (c *Conn) Readiness() (readable, writable, hangup bool) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	failed := c.failed != nil || c.closed
	return failed || c.ended || len(c.arrived) > 0, failed || c.roomLocked() > 0, failed || c.ended
}

// SetNotify sets a function that is called, without a lock, after each change of the readiness, and perhaps without one.
func (c *Conn) SetNotify(notify func()) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.notify = notify
}

// unlock wakes those that wait, releases the lock, and notifies both ends.
func (k *link) unlock(c *Conn) {
	k.changed.Broadcast()
	own, other := c.notify, c.peer.notify
	k.mu.Unlock()
	if own != nil {
		own()
	}
	if other != nil {
		other()
	}
}

func (c *Conn) readLocked(p []byte) (int, error) {
	switch {
	case c.closed:
		return 0, opError("read", net.ErrClosed)
	case len(c.arrived) > 0:
		n := copy(p, c.arrived)
		c.arrived = c.arrived[n:]
		if len(c.arrived) == 0 {
			c.arrived = nil
		}
		return n, nil
	case c.failed != nil:
		return 0, opError("read", c.failed)
	case c.ended:
		return 0, io.EOF
	default:
		return 0, nil
	}
}

// roomLocked returns how many bytes can be written now.
func (c *Conn) roomLocked() int {
	return max(0, c.link.network.links.Window-c.peer.held-len(c.peer.arrived))
}

func (c *Conn) writeLocked(p []byte, delay time.Duration) (int, error) {
	switch {
	case c.closed || c.writeEnd:
		return 0, opError("write", net.ErrClosed)
	case c.failed != nil:
		return 0, opError("write", syscall.EPIPE)
	}
	n := min(len(p), c.roomLocked())
	if n > 0 {
		c.peer.sendLocked(segment{data: slices.Clone(p[:n])}, delay)
	}
	return n, nil
}

// sendLocked puts a segment on its way to c, behind those before it.
func (c *Conn) sendLocked(s segment, delay time.Duration) {
	s.at = time.Now().Add(delay)
	if n := len(c.arriving); n > 0 && c.arriving[n-1].at.After(s.at) {
		s.at = c.arriving[n-1].at
	}
	c.arriving = append(c.arriving, s)
	c.held += len(s.data)
	if len(c.arriving) == 1 {
		c.scheduleLocked()
	}
}

// scheduleLocked starts the timer for the first segment.
func (c *Conn) scheduleLocked() {
	if len(c.arriving) == 0 || c.link.abandoned {
		return
	}
	at := c.arriving[0].at
	if c.notBefore.After(at) {
		at = c.notBefore
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(time.Until(at), c.deliver)
	} else {
		c.timer.Reset(time.Until(at))
	}
}

// deliver runs when the first segment may be due.
func (c *Conn) deliver() {
	c.link.mu.Lock()
	defer c.link.unlock(c)
	if c.link.abandoned || time.Now().Before(c.notBefore) {
		return
	}
	for len(c.arriving) > 0 && !time.Now().Before(c.arriving[0].at) {
		s := c.arriving[0]
		c.arriving = c.arriving[1:]
		c.held -= len(s.data)
		c.receiveLocked(s)
	}
	c.scheduleLocked()
}

func (c *Conn) receiveLocked(s segment) {
	switch {
	case s.err == io.EOF: //nolint:errorlint // set by this package
		c.ended = true
	case s.err != nil:
		c.failed = s.err
	case c.closed: // the kernel answers data for a closed socket with a reset
		if c.peer.failed == nil && !c.peer.closed {
			c.peer.sendLocked(segment{err: syscall.ECONNRESET}, 0)
		}
	default:
		c.arrived = append(c.arrived, s.data...)
	}
}

// CloseWrite ends the outgoing direction behind what was written.
func (c *Conn) CloseWrite() error {
	delay := c.link.network.delay()
	c.link.mu.Lock()
	defer c.link.unlock(c)
	c.closeWriteLocked(delay)
	return nil
}

func (c *Conn) closeWriteLocked(delay time.Duration) {
	if !c.writeEnd {
		c.writeEnd = true
		c.peer.sendLocked(segment{err: io.EOF}, delay)
	}
}

// Close ends the outgoing direction, and discards what was not read. What arrives afterwards resets the connection.
func (c *Conn) Close() error {
	delay := c.link.network.delay()
	c.link.mu.Lock()
	if c.closed {
		c.link.mu.Unlock()
		return opError("close", net.ErrClosed)
	}
	c.closeWriteLocked(delay)
	c.closed, c.arrived = true, nil
	last := c.peer.closed
	if last {
		c.link.stopLocked()
	}
	c.link.unlock(c)
	if last {
		c.link.network.remove(c.link)
	}
	return nil
}

// stopLocked stops the timers of a connection that is closed at both ends.
func (k *link) stopLocked() {
	for _, c := range k.ends {
		for _, t := range []*time.Timer{c.timer, c.readDeadline.timer, c.writeDeadline.timer} {
			if t != nil {
				t.Stop()
			}
		}
	}
}

// cut resets the connection at both ends: of what is on its way, a random part still arrives.
func (k *link) cut() {
	k.network.mu.Lock()
	part := k.network.rng.Float64()
	k.network.mu.Unlock()
	k.mu.Lock()
	defer k.unlock(k.ends[0])
	k.abandoned = true // what is on its way has its end here
	for _, c := range k.ends {
		kept := int(part * float64(c.held))
		for _, s := range c.arriving {
			c.arrived = append(c.arrived, s.data[:min(kept, len(s.data))]...)
			kept -= min(kept, len(s.data))
		}
		c.arriving, c.held = nil, 0
		if c.failed == nil {
			c.failed = syscall.ECONNRESET
		}
	}
}

func (k *link) abandon() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.abandoned = true
}

// stall holds back what is on its way until a time.
func (k *link) stall(until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.ends {
		c.notBefore = until
		c.scheduleLocked()
	}
}

// SetDeadline sets the deadlines of Read and Write.
func (c *Conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets the deadline of Read.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.readDeadline, t) }

// SetWriteDeadline sets the deadline of Write.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writeDeadline, t) }

func (c *Conn) setDeadline(d *deadline, t time.Time) error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.closed {
		return opError("set", net.ErrClosed)
	}
	d.at = t
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if !t.IsZero() {
		d.timer = time.AfterFunc(time.Until(t), c.wake)
	}
	c.link.changed.Broadcast()
	return nil
}

func (c *Conn) wake() {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.link.changed.Broadcast()
}
