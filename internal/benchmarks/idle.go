package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// idle measures the memory and goroutines of an idle connection after one message.
func idle(cfg config) {
	results := newTable(fmt.Sprintf("%d idle connections: bytes per connection, and goroutines", cfg.conns), "%.0f", "RSS", "heap", "stack", "goroutines")
	for range cfg.passes {
		for _, c := range cfg.contenders {
			before, after := openIdle(c, cfg.conns)
			n := float64(cfg.conns)
			results.add(c.name, "RSS", float64(after.RSS-before.RSS)/n)
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
func openIdle(c contender, conns int) (before, after Stats) {
	p := start(c)
	defer p.stop()
	first := exchange(p, c)
	before = p.command("collect")
	clients := make([]*client, conns)
	const dialers = 16
	var wg sync.WaitGroup
	for d := range dialers {
		wg.Go(func() {
			for i := d; i < conns; i += dialers {
				clients[i] = exchange(p, c)
			}
		})
	}
	wg.Wait()
	time.Sleep(200 * time.Millisecond)
	after = p.command("collect")
	if path := os.Getenv("PROFILE"); path != "" {
		p.command("heap " + path)
	}
	for _, cl := range append(clients, first) {
		cl.close()
	}
	return before, after
}

// exchange opens a connection, sends one request and waits for the reply.
func exchange(p *process, c contender) *client {
	cl, err := dial(p.addr, c)
	check(err)
	_, err = cl.conn.Write(masked(c.request))
	check(err)
	if err := cl.await(1); err != nil {
		fatal(fmt.Errorf("%s: %w", c.name, err))
	}
	return cl
}
