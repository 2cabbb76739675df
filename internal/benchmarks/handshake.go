package main

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// handshakes is the number of connections that the handshake suite opens.
const handshakes = 4000

// handshake measures the CPU time of the server for opening and for closing a connection.
func handshake(cfg config) {
	const open, openTLS, closing = "open", "open, TLS", "close"
	results := newTable(fmt.Sprintf("%d connections: CPU of the server to open one, and to close one, µs", handshakes), "%.1f", open, openTLS, closing)
	for range cfg.passes {
		for _, c := range cfg.contenders {
			opened, closed := openAndClose(c, setup{})
			results.add(c.name, open, opened)
			results.add(c.name, closing, closed)
			if !c.plain {
				opened, _ = openAndClose(c, setup{secure: true})
				results.add(c.name, openTLS, opened)
			}
		}
	}
	results.print()
	results.printRatios()
}

// openAndClose returns the CPU time per connection, in µs.
func openAndClose(c contender, how setup) (opened, closed float64) {
	p := start(c, how)
	defer p.stop()
	closeAll(dialAll(p, c, 200)) // so that the server has allocated what it keeps
	time.Sleep(200 * time.Millisecond)
	begin := p.command("stats")
	clients := dialAll(p, c, handshakes)
	time.Sleep(200 * time.Millisecond)
	open := p.command("stats")
	closeAll(clients)
	time.Sleep(500 * time.Millisecond)
	end := p.command("stats")
	return cpuMicros(begin, open) / handshakes, cpuMicros(open, end) / handshakes
}

func cpuMicros(before, after Stats) float64 { return float64(after.CPU-before.CPU) / 1000 }

func dialAll(p *process, c contender, n int) []*client {
	return openConns(n, func() *client {
		cl, err := dial(p, c)
		check(err)
		return cl
	})
}

// openConns calls open n times, on 16 goroutines.
func openConns(n int, open func() *client) []*client {
	const dialers = 16
	clients := make([]*client, n)
	var wg sync.WaitGroup
	for d := range dialers {
		wg.Go(func() {
			for i := d; i < n; i += dialers {
				clients[i] = open()
			}
		})
	}
	wg.Wait()
	return clients
}

func closeAll(clients []*client) {
	for cl := range slices.Values(clients) {
		cl.close()
	}
}
