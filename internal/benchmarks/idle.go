package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// idle measures what a connection costs at rest, after one message.
func idle(cfg config) {
	of := newTable(fmt.Sprintf("%d connections at rest: bytes per connection, and goroutines", cfg.conns), "%.0f", "RSS", "heap", "stack", "goroutines")
	for range cfg.passes {
		for _, c := range cfg.contenders {
			before, after := rest(c, cfg.conns)
			n := float64(cfg.conns)
			of.add(c.name, "RSS", float64(after.RSS-before.RSS)/n)
			of.add(c.name, "heap", (float64(after.Heap)-float64(before.Heap))/n)
			of.add(c.name, "stack", (float64(after.Stack)-float64(before.Stack))/n)
			of.add(c.name, "goroutines", float64(after.Goroutines-before.Goroutines)/n)
		}
	}
	of.print()
	of.printRatios()
}

// rest opens connections beside a first one, so that what is made once is not
// counted.
func rest(c contender, conns int) (before, after Stats) {
	p := start(c)
	defer p.stop()
	first := talk(p, c)
	before = p.command("collect")
	clients := make([]*client, conns)
	const dialers = 16
	var wg sync.WaitGroup
	for d := range dialers {
		wg.Go(func() {
			for i := d; i < conns; i += dialers {
				clients[i] = talk(p, c)
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

// talk opens a connection and has one request answered.
func talk(p *process, c contender) *client {
	cl, err := dial(p.addr, c)
	check(err)
	_, err = cl.conn.Write(masked(c.request))
	check(err)
	if err := cl.await(1); err != nil {
		fatal(fmt.Errorf("%s: %w", c.name, err))
	}
	return cl
}
