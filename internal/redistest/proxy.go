package redistest

import (
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

// A Proxy forwards TCP connections to an address until it is told to break them.
// It is safe for concurrent use.
type Proxy struct {
	Addr string // host:port, where it listens

	t  testing.TB
	to string
	wg sync.WaitGroup // every goroutine

	mu       sync.Mutex
	listener net.Listener // nil while cut
	conns    map[net.Conn]struct{}
	flow     chan struct{} // closed unless stalled
	delay    time.Duration
}

// StartProxy starts a proxy in front of the address to, a host:port. It ends with
// the test.
func StartProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	p := &Proxy{
		t: t, to: to,
		conns: map[net.Conn]struct{}{},
		flow:  make(chan struct{}),
	}
	close(p.flow)
	var err error
	for range attempts {
		p.Addr = net.JoinHostPort(host, strconv.Itoa(randomPort()))
		if err = p.listen(); err == nil {
			t.Cleanup(p.close)
			return p
		}
	}
	t.Fatalf("redistest: proxy to %s: %v", to, err)
	return nil
}

// Cut closes all connections and refuses new ones until Mend.
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
	p.mend() // who waits for a stall to end must see the close
}

// Stall keeps connections open and accepts new ones, but forwards nothing in
// either direction until Mend, not even that a side has closed. What is sent
// meanwhile is not lost.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flowing() {
		p.flow = make(chan struct{})
	}
}

// Mend ends a Cut or a Stall.
func (p *Proxy) Mend() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mend()
	if p.listener != nil {
		return
	}
	// A process that starts meanwhile has a copy of the closed listener, and with
	// it the port, until it executes its program.
	if err := poll(func() (bool, error) { err := p.listen(); return err == nil, err }); err != nil {
		p.t.Fatalf("redistest: mend of the proxy to %s: %v", p.to, err)
	}
}

func (p *Proxy) mend() {
	if !p.flowing() {
		close(p.flow)
	}
}

func (p *Proxy) flowing() bool {
	select {
	case <-p.flow:
		return true
	default:
		return false
	}
}

// Delay makes every chunk towards the client wait for d before it goes on, where
// a chunk is what has arrived at once. Zero, the default, ends that; Mend does not.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// close ends all goroutines.
func (p *Proxy) close() {
	p.Cut()
	p.wg.Wait()
}
