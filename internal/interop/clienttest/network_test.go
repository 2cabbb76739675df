package clienttest_test

import (
	"context"
	"net"
	"sync"
)

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
