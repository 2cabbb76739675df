package clienttest_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A proxy passes TCP connections on to servers, and injects faults at random, from a seed. The order of the bytes of each
// direction is kept.
type proxy struct {
	listener net.Listener
	servers  []string
	healthy  atomic.Bool // no new faults
	rest     sync.WaitGroup

	mu     sync.Mutex
	random *rand.Rand
	open   map[net.Conn]struct{}

	refused, cut, halfClosed, stalled, delayed atomic.Int64
}

func startProxy(t *testing.T, seed uint64, servers ...string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, servers: servers, random: rand.New(rand.NewPCG(seed, 18)), open: map[net.Conn]struct{}{}}
	p.rest.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.cutAll()
		p.rest.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.rest.Go(func() { p.pass(client.(*net.TCPConn)) })
	}
}

func (p *proxy) below(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.random.IntN(n)
}

// pass connects a client to a server, until either end closes or a fault occurs.
func (p *proxy) pass(client *net.TCPConn) {
	defer p.track(client)()
	if !p.healthy.Load() && p.below(10) == 0 {
		p.refused.Add(1)
		return
	}
	conn, err := net.Dial("tcp", p.servers[p.below(len(p.servers))])
	if err != nil {
		return
	}
	server := conn.(*net.TCPConn)
	defer p.track(server)()
	var directions sync.WaitGroup
	directions.Go(func() { p.direction(server, client) })
	directions.Go(func() { p.direction(client, server) })
	directions.Wait()
}

// track closes a connection when the returned function is called, or the proxy is.
func (p *proxy) track(conn net.Conn) (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[conn] = struct{}{}
	return func() {
		_ = conn.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, conn)
	}
}

// cutAll closes all connections.
func (p *proxy) cutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.open {
		_ = conn.Close()
	}
}

// budget returns how many bytes a direction passes on until the next fault.
func (p *proxy) budget() int { return 3000 + p.below(100_000) }

type chunk struct {
	bytes []byte
	due   time.Time
}

// direction passes bytes on, after delays, until a fault ends it.
func (p *proxy) direction(to, from *net.TCPConn) {
	chunks := make(chan chunk, 10_000)
	go func() { // ends when the connection is closed
		defer close(chunks)
		for {
			b := make([]byte, 1+p.below(4096))
			n, err := from.Read(b)
			if err != nil {
				return
			}
			delay := time.Duration(p.below(4000)) * time.Microsecond
			p.delayed.Add(1)
			chunks <- chunk{b[:n], time.Now().Add(delay)}
		}
	}()
	budget := p.budget()
	for c := range chunks {
		time.Sleep(time.Until(c.due))
		if budget -= len(c.bytes); budget < 0 && !p.healthy.Load() {
			if p.fault(to, from, c.bytes[:p.below(len(c.bytes)+1)]) {
				return
			}
			budget = p.budget()
		}
		if _, err := to.Write(c.bytes); err != nil {
			_ = from.Close()
			return
		}
	}
	_ = to.CloseWrite()
}

// fault injects a fault, after the part of the bytes that still arrives. It reports whether the direction has ended.
func (p *proxy) fault(to, from *net.TCPConn, part []byte) bool {
	switch p.below(4) {
	case 0: // cut
		p.cut.Add(1)
		_, _ = to.Write(part)
		_ = to.SetLinger(0)
		_ = to.Close()
		_ = from.Close()
	case 1: // half-close: the other direction goes on for a while
		p.halfClosed.Add(1)
		_, _ = to.Write(part)
		_ = to.CloseWrite()
		time.Sleep(time.Duration(20+p.below(200)) * time.Millisecond)
		_ = from.Close()
	case 2: // stall, and then cut
		p.stalled.Add(1)
		time.Sleep(time.Duration(20+p.below(200)) * time.Millisecond)
		_ = to.Close()
		_ = from.Close()
	default: // stall
		p.stalled.Add(1)
		time.Sleep(time.Duration(20+p.below(200)) * time.Millisecond)
		return false
	}
	return true
}

// The proxy without faults passes everything on, in both directions and in order.
func TestProxy_KeepsOrder(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(conn, conn)
		_ = conn.Close()
	}()
	p := startProxy(t, 1, listener.Addr().String())
	p.healthy.Store(true)
	conn, err := net.Dial("tcp", p.listener.Addr().String())
	require.NoError(t, err)
	sent := make([]byte, 300_000)
	for i := range sent {
		sent[i] = byte(i * 31 >> 3)
	}
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	received, err := io.ReadAll(conn)
	require.True(t, err == nil || errors.Is(err, io.EOF))
	require.Equal(t, sent, received)
	require.Positive(t, p.delayed.Load())
}
