package main

import (
	"fmt"
	"syscall"
	"time"
)

// broadcastConns is the number of connections of the broadcast suite. A descriptor limit of 20,000 is
// enough for it.
const broadcastConns = 18_000

// broadcast measures many idle connections and one publication to all of them.
func broadcast(cfg config) {
	var files syscall.Rlimit
	check(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	if need := uint64(broadcastConns + 200); files.Cur < need {
		fmt.Printf("\nbroadcast: skipped, ulimit -n is %d and must be at least %d\n", files.Cur, need)
		return
	}
	const rss, heap, kernel, cpu, last = "RSS bytes", "heap bytes", "kernel bytes", "CPU µs per delivery", "last delivery after ms"
	results := newTable(fmt.Sprintf("%d idle connections, and a message of 200 bytes to all of them", broadcastConns), "%.2f", rss, heap, kernel, cpu, last).named("broadcast")
	for range cfg.passes {
		for _, c := range cfg.contenders {
			p := start(c, setup{})
			first := exchange(p, c)
			before := p.command("collect")
			s := subscribe(p, c, broadcastConns)
			time.Sleep(200 * time.Millisecond)
			after := p.command("collect")
			cpuMicros, lastMillis := s.deliver(1)
			results.add(c.name, rss, float64(after.RSS-before.RSS)/broadcastConns)
			if c.command == nil {
				results.add(c.name, heap, (float64(after.Heap)-float64(before.Heap))/broadcastConns)
			}
			results.add(c.name, kernel, float64(after.Slab-before.Slab)/broadcastConns/2) // the other half is the client's
			results.add(c.name, cpu, cpuMicros)
			results.add(c.name, last, lastMillis)
			s.close()
			first.close()
			p.stop()
		}
	}
	results.print()
	results.printRatios()
}
