package redistest

import (
	"net"
	"time"
)

// listen starts to accept connections at p.Addr. The caller holds p.mu or has not yet shared p.
func (p *Proxy) listen() error {
	listener, err := net.Listen("tcp", p.Addr)
	if err != nil {
		return err
	}
	p.listener = listener
	p.wg.Go(func() { p.accept(listener) })
	return nil
}

// accept starts a goroutine for each connection. It runs until Cut closes listener.
func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		if p.track(listener, client) {
			p.wg.Go(func() { p.serve(listener, client) })
		}
	}
}

// track registers conn so that Cut closes it. If Cut has been called since listener opened, track
// closes conn itself and returns false.
func (p *Proxy) track(listener net.Listener, conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != listener {
		_ = conn.Close()
		return false
	}
	p.conns[conn] = struct{}{}
	return true
}

// untrack closes conn and forgets it. Cut may have closed conn already.
func (p *Proxy) untrack(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

// serve forwards in both directions until one side closes. It owns client and the connection to the
// server. A second goroutine forwards from the client to the server; it ends when both connections
// are closed.
func (p *Proxy) serve(listener net.Listener, client net.Conn) {
	defer p.untrack(client)
	server, err := new(net.Dialer).DialContext(p.t.Context(), "tcp", p.to)
	if err != nil {
		<-p.unstalled(fromServer) // a stalled proxy does not forward the close either
		return
	}
	if !p.track(listener, server) {
		return
	}
	defer p.untrack(server)
	p.wg.Go(func() {
		p.forward(server, client, fromClient)
		_ = server.Close() // ends the other direction
	})
	p.forward(client, server, fromServer)
}

// A side is an end of a forwarded connection.
type side int

const (
	fromClient side = iota
	fromServer
)

// forward copies from one side to the other until one of them fails.
func (p *Proxy) forward(to, from net.Conn, source side) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		// Data and errors wait alike, so that a close never overtakes data.
		p.wait(p.currentDelay(source))
		<-p.unstalled(source)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// unstalled returns a channel that is closed while data from a side is not stalled.
func (p *Proxy) unstalled(source side) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if source == fromClient && p.oneWay {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return p.resumed
}

// currentDelay returns the delay of the next chunk from a side.
func (p *Proxy) currentDelay(source side) time.Duration {
	if source == fromClient {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}

// wait waits for d, or until the test ends.
func (p *Proxy) wait(d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-p.t.Context().Done():
	}
}
