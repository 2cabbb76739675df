package redistest

import (
	"net"
	"time"
)

// listen starts to accept connections at p.Addr. Others must not use p.
func (p *Proxy) listen() error {
	listener, err := net.Listen("tcp", p.Addr)
	if err != nil {
		return err
	}
	p.listener = listener
	p.wg.Go(func() { p.accept(listener) })
	return nil
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		if p.adopt(listener, client) {
			p.wg.Go(func() { p.serve(listener, client) })
		}
	}
}

// adopt makes conn one that Cut closes. It closes it itself and returns false if
// Cut has been called since listener opened.
func (p *Proxy) adopt(listener net.Listener, conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != listener {
		_ = conn.Close()
		return false
	}
	p.conns[conn] = struct{}{}
	return true
}

func (p *Proxy) drop(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

// serve forwards in both directions until one side closes.
func (p *Proxy) serve(listener net.Listener, client net.Conn) {
	defer p.drop(client)
	server, err := new(net.Dialer).DialContext(p.t.Context(), "tcp", p.to)
	if err != nil {
		<-p.pass()
		return
	}
	if !p.adopt(listener, server) {
		return
	}
	defer p.drop(server)
	p.wg.Go(func() {
		p.forward(server, client, func() time.Duration { return 0 })
		_ = server.Close()
	})
	p.forward(client, server, p.late)
}

// forward copies from one side to the other until either fails.
func (p *Proxy) forward(to, from net.Conn, late func() time.Duration) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.wait(late())
		<-p.pass()
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

// pass returns a channel that is closed unless the proxy is stalled.
func (p *Proxy) pass() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flow
}

// late returns how long the next chunk towards the client must wait.
func (p *Proxy) late() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}

// wait waits for d or the end of the test.
func (p *Proxy) wait(d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-p.t.Context().Done():
	}
}
