//go:build unix

package faults_test

import (
	"bytes"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A relay forwards TCP connections to an address that can be changed, and stalls or cuts either all
// of them, or only those with commands or only those with subscriptions to Redis. In front of a
// node, it breaks each connection after some bytes.
type relay struct {
	addr string
	wg   sync.WaitGroup

	mu       sync.Mutex      // guards everything below
	spoil    func() sabotage // for each connection; nil breaks none
	to       string
	closed   bool
	refusing bool
	listener net.Listener
	conns    map[*relayed]struct{}
	stalls   []stall
	changed  chan struct{} // closed when the above has changed
	cuts     int           // connections
	withheld int           // chunks that had to wait
	sabotage map[sabotageKind]int
}

// A class is a kind of connection to Redis.
type class int

const (
	allConns class = iota
	commandConns
	pubSubConns
)

// A stall stops data.
type stall struct {
	class   class
	replies bool // only what the server sends
}

// sabotage breaks a connection after a number of bytes from the server.
type sabotage struct {
	after int // 0: never
	kind  sabotageKind
}

type sabotageKind string

const (
	cutShort sabotageKind = "cut"       // both sides are closed
	halfOpen sabotageKind = "half-open" // nothing is forwarded any more, also no close
	paused   sabotageKind = "stall"     // for stallFor
)

const stallFor = 300 * time.Millisecond

// A relayed is a pair of connections.
type relayed struct {
	client, server net.Conn
	subscribes     bool // guarded by relay.mu, as the next one
	frozen         bool // half-open
	plan           sabotage
}

func startRelay(t *testing.T, to string, spoil func() sabotage) *relay {
	t.Helper()
	r := &relay{to: to, spoil: spoil, conns: map[*relayed]struct{}{}, changed: make(chan struct{}), sabotage: map[sabotageKind]int{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r.listener, r.addr = listener, listener.Addr().String()
	r.wg.Go(func() { r.accept(listener) })
	t.Cleanup(r.close)
	return r
}

func (r *relay) close() {
	r.mu.Lock()
	r.closed = true
	_ = r.listener.Close()
	r.cutLocked(allConns)
	r.mu.Unlock()
	r.wg.Wait()
}

func (r *relay) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.serve(client) })
	}
}

// serve connects to the server. Connections that are refused are closed at once.
func (r *relay) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	r.mu.Lock()
	to, refusing := r.to, r.refusing || r.closed
	r.mu.Unlock()
	if refusing {
		return
	}
	server, err := net.DialTimeout("tcp", to, 5*time.Second)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	c := &relayed{client: client, server: server}
	r.mu.Lock()
	if r.refusing || r.closed || r.to != to {
		r.mu.Unlock()
		return
	}
	if r.spoil != nil {
		c.plan = r.spoil()
	}
	r.conns[c] = struct{}{}
	r.mu.Unlock()
	var other sync.WaitGroup
	other.Go(func() { r.forward(c, server, client, false) })
	r.forward(c, client, server, true)
	other.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

// forward copies one direction until either side fails.
func (r *relay) forward(c *relayed, to, from net.Conn, replies bool) {
	buf := make([]byte, 16<<10)
	sent, broken := 0, false
	for {
		n, err := from.Read(buf)
		if !replies {
			r.classify(c, buf[:n])
		}
		if !r.mayPass(c, replies) {
			break
		}
		chunk := buf[:n]
		if cutAt := c.plan.after - sent; replies && c.plan.after > 0 && !broken && n >= cutAt {
			broken = true
			_, _ = to.Write(chunk[:cutAt])
			if chunk = chunk[cutAt:]; !r.breakConn(c) {
				break
			}
		}
		sent += n
		if _, failed := to.Write(chunk); err != nil || failed != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
}

// classify finds out what a client of Redis uses a connection for.
func (r *relay) classify(c *relayed, command []byte) {
	for _, name := range []string{"\r\nsubscribe\r\n", "\r\nssubscribe\r\n"} {
		if at := bytes.Index(command, []byte(name)); at >= 0 && at < 16 {
			r.mu.Lock()
			c.subscribes = true
			r.mu.Unlock()
		}
	}
}

// mayPass waits until no stall affects the data. It returns false if the connection was cut.
func (r *relay) mayPass(c *relayed, replies bool) bool {
	waited := false
	for {
		r.mu.Lock()
		_, ok := r.conns[c]
		stalled := c.frozen || slices.ContainsFunc(r.stalls, func(s stall) bool { return c.is(s.class) && (replies || !s.replies) })
		if stalled && !waited {
			r.withheld++
		}
		changed := r.changed
		r.mu.Unlock()
		if !ok || !stalled {
			return ok
		}
		waited = true
		<-changed
	}
}

// is reports whether a connection belongs to a class. The relay's lock must be held.
func (c *relayed) is(k class) bool {
	return k == allConns || (k == pubSubConns) == c.subscribes
}

// breakConn carries the plan of a connection out. It returns false if nothing is to be forwarded.
func (r *relay) breakConn(c *relayed) bool {
	r.mu.Lock()
	if r.spoil == nil {
		r.mu.Unlock()
		return true
	}
	r.sabotage[c.plan.kind]++
	c.frozen = c.plan.kind == halfOpen
	r.mu.Unlock()
	switch c.plan.kind {
	case paused:
		time.Sleep(stallFor)
		return true
	case halfOpen:
		return r.mayPass(c, true)
	default:
		return false
	}
}

func (r *relay) change() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// cut closes connections once.
func (r *relay) cut(k class) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cutLocked(k)
}

func (r *relay) cutLocked(k class) {
	for c := range r.conns {
		if c.is(k) {
			_, _ = c.client.Close(), c.server.Close()
			delete(r.conns, c)
			r.cuts++
		}
	}
	r.change()
}

// refuse closes all connections, and every new one at once until restore is called.
func (r *relay) refuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusing = true
	r.cutLocked(allConns)
}

// stall stops data until restore is called.
func (r *relay) stall(s stall) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalls = append(r.stalls, s)
	r.change()
}

// restore ends the effect of refuse and stall.
func (r *relay) restore() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusing, r.stalls = false, nil
	r.change()
}

// heal closes connections that are half-open, and breaks no further ones.
func (r *relay) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spoil = nil
	for c := range r.conns {
		if c.frozen {
			_, _ = c.client.Close(), c.server.Close()
			delete(r.conns, c)
		}
	}
	r.change()
}

// redirect closes all connections and forwards new ones to another address.
func (r *relay) redirect(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	r.cutLocked(allConns)
}

// count returns the connections that were cut, and the chunks that had to wait.
func (r *relay) count() (cuts, withheld int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cuts, r.withheld
}
