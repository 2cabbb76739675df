package redistest

import (
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/penstock-go/penstock/internal/freeport"
)

// A Proxy forwards TCP connections to an address and simulates network failures. It is safe for
// concurrent use.
type Proxy struct {
	Addr string // host:port on which it listens

	t  testing.TB
	to string
	wg sync.WaitGroup // of all goroutines

	mu       sync.Mutex   // guards everything below
	listener net.Listener // nil after Cut
	conns    map[net.Conn]struct{}
	resumed  chan struct{} // closed while the proxy is not stalled
	oneWay   bool          // a stall affects only what the server sends
	delay    time.Duration
}

// StartProxy starts a proxy for the address to, in the form host:port. The proxy ends with the test.
func StartProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	p := &Proxy{
		t: t, to: to,
		conns:   map[net.Conn]struct{}{},
		resumed: make(chan struct{}),
	}
	close(p.resumed)
	var err error
	for range attempts {
		p.Addr = net.JoinHostPort(host, strconv.Itoa(freeport.Pick()))
		if err = p.listen(); err == nil {
			t.Cleanup(p.close)
			return p
		}
	}
	t.Fatalf("redistest: start a proxy to %s: %v", to, err)
	return nil
}

// Cut closes all connections and refuses new ones until Restore is called.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

func (p *Proxy) cut() {
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	for conn := range p.conns {
		_ = conn.Close()
	}
	p.unstall() // goroutines that wait for the end of a stall must see the close
}

// Stall stops forwarding in both directions until Restore is called. Connections stay open and new ones
// are accepted. Data and closes are forwarded after Restore.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stallLocked(false)
}

// StallReplies does what Stall does, but only with what the server sends. What clients send is
// forwarded.
func (p *Proxy) StallReplies() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stallLocked(true)
}

// stallLocked begins a stall, or changes its direction.
func (p *Proxy) stallLocked(oneWay bool) {
	p.oneWay = oneWay
	if p.isForwarding() {
		p.resumed = make(chan struct{})
	}
}

// Restore ends the effect of Cut, Stall and StallReplies.
func (p *Proxy) Restore() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unstall()
	if p.listener != nil {
		return
	}
	// A child process that is being started inherits the closed listener, and with it the port,
	// until it executes its program.
	if err := poll(func() (bool, error) { err := p.listen(); return err == nil, err }); err != nil {
		p.t.Fatalf("redistest: reopen the proxy to %s: %v", p.to, err)
	}
}

func (p *Proxy) unstall() {
	if !p.isForwarding() {
		close(p.resumed)
	}
}

func (p *Proxy) isForwarding() bool {
	select {
	case <-p.resumed:
		return true
	default:
		return false
	}
}

// Delay delays every chunk to the client by d. A chunk is the data of one read. The default is 0;
// Restore does not reset the delay.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// close ends all goroutines and waits for them.
func (p *Proxy) close() {
	p.Cut()
	p.wg.Wait()
}
