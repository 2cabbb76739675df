package main

import (
	"fmt"
	"os"
	"time"
)

// idle measures the memory and goroutines of an idle connection after one message.
func idle(cfg config) {
	openAll(cfg, "idle", cfg.conns, setup{}, fmt.Sprintf("%d idle connections: bytes per connection, and goroutines", cfg.conns))
}

func idleTLS(cfg config) {
	openAll(overTLS(cfg), "idletls", cfg.tlsConns, setup{secure: true}, fmt.Sprintf("%d idle TLS connections: bytes per connection, and goroutines", cfg.tlsConns))
}

func openAll(cfg config, name string, conns int, how setup, title string) {
	results := newTable(title, "%.0f", "RSS", "heap", "stack", "goroutines").named(name)
	for range cfg.passes {
		for _, c := range cfg.contenders {
			before, after := openIdle(c, conns, how)
			n := float64(conns)
			results.add(c.name, "RSS", float64(after.RSS-before.RSS)/n)
			if c.command != nil {
				continue // the rest is Go's
			}
			results.add(c.name, "heap", (float64(after.Heap)-float64(before.Heap))/n)
			results.add(c.name, "stack", (float64(after.Stack)-float64(before.Stack))/n)
			results.add(c.name, "goroutines", float64(after.Goroutines-before.Goroutines)/n)
		}
	}
	results.print()
	results.printRatios()
}

// openIdle returns the statistics before and after it opens connections. It opens one more connection
// before, so that one-time allocations are not counted.
func openIdle(c contender, conns int, how setup) (before, after Stats) {
	p := start(c, how)
	defer p.stop()
	first := exchange(p, c)
	before = p.command("collect")
	clients := openConns(conns, func() *client { return exchange(p, c) })
	time.Sleep(200 * time.Millisecond)
	after = p.command("collect")
	if path := os.Getenv(profileTo); path != "" {
		p.command("heap " + path)
	}
	closeAll(append(clients, first))
	return before, after
}

// exchange opens a connection, sends one request and waits for the reply.
func exchange(p *process, c contender) *client {
	cl, err := dial(p, c)
	check(err)
	_, err = cl.conn.Write(p.encode(c.request(0)))
	if err == nil {
		err = cl.await(1)
	}
	if err != nil {
		fatal(fmt.Errorf("%s: %w", c.name, err))
	}
	return cl
}
