package main

import (
	"fmt"
	"sync/atomic"
	"time"
)

// pingConns is the number of connections of the pings suite.
const pingConns = 4000

// pings measures the CPU time of the server for a ping and its pong, which is all that an idle
// connection costs.
func pings(cfg config) {
	const cpu, count = "CPU µs per ping", "pings per second"
	results := newTable(fmt.Sprintf("%d idle connections, each with a ping per second", pingConns), "%.1f", cpu, count)
	c := variant("pings")
	for range cfg.passes {
		p := start(c, setup{})
		var ponged atomic.Int64
		clients := openConns(pingConns, func() *client { return exchange(p, c) })
		for _, cl := range clients {
			go func() { // answers pings until the connection is closed
				for {
					if _, err := cl.next(); err != nil {
						return
					}
					ponged.Add(1)
				}
			}()
		}
		time.Sleep(2 * pingInterval)
		before, n, started := p.command("stats"), ponged.Load(), time.Now()
		time.Sleep(5 * pingInterval)
		after, elapsed := p.command("stats"), time.Since(started)
		answered := float64(ponged.Load() - n)
		results.add("penstock", cpu, cpuMicros(before, after)/answered)
		results.add("penstock", count, answered/elapsed.Seconds())
		closeAll(clients)
		p.stop()
	}
	results.print()
}
