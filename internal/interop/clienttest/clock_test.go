package clienttest_test

import (
	"context"
	"net"
	"sync"
	"time"
)

// A clock converts between the time of the client and that of the test, which runs in a bubble with virtual time if
// the client does, and otherwise is slower by a factor.
type clock struct {
	start time.Time
	scale int
	limit time.Duration // of the test, for what must happen
}

// real returns how long a time of the client is for the test.
func (c clock) real(d time.Duration) time.Duration { return d / time.Duration(c.scale) }

// since returns the time of the client since an instant of the test.
func (c clock) since(at time.Time) time.Duration { return time.Since(at) * time.Duration(c.scale) }

// between returns the time of the client between two instants of the test.
func (c clock) between(a, b time.Time) time.Duration { return b.Sub(a) * time.Duration(c.scale) }

// sleep waits for a time of the client.
func (c clock) sleep(d time.Duration) { time.Sleep(c.real(d)) }

// timestamp returns the server's time in milliseconds, which runs like that of the client.
func (c clock) timestamp() int64 { return 1730000000000 + c.since(c.start).Milliseconds() }

// A pipeNetwork is a listener whose connections are in memory.
type pipeNetwork struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func newPipeNetwork() *pipeNetwork {
	return &pipeNetwork{accepted: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept returns the server's end of a connection.
func (n *pipeNetwork) Accept() (net.Conn, error) {
	select {
	case conn := <-n.accepted:
		return conn, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (n *pipeNetwork) Close() error { n.once.Do(func() { close(n.closed) }); return nil }

// Addr returns an address that means nothing.
func (n *pipeNetwork) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)} }

func (n *pipeNetwork) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	outer, inner := net.Pipe()
	remote, server := net.Pipe()
	go pump(remote, inner)
	go pump(inner, remote)
	select {
	case n.accepted <- server:
		return outer, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// pump passes bytes on. What was written is not lost if the other end is slow.
func pump(to, from net.Conn) {
	chunks := make(chan []byte, 10_000)
	go func() {
		defer close(chunks)
		for {
			b := make([]byte, 64<<10)
			k, err := from.Read(b)
			if err != nil {
				return
			}
			chunks <- b[:k]
		}
	}()
	for b := range chunks {
		if _, err := to.Write(b); err != nil {
			_ = from.Close()
		}
	}
	_ = to.Close()
}
