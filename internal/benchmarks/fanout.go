package main

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

var publishes = []struct {
	name               string
	subscribers, burst int
}{
	{"1 to 1,000", 1000, 1},
	{"16 to 1,000", 1000, 16},
	{"1 to 10,000", 10_000, 1},
}

// fanOut measures what a delivered message costs the server.
func fanOut(cfg config) {
	var columns []string
	for _, to := range publishes {
		columns = append(columns, to.name)
	}
	cpu := newTable("200 bytes published to subscribers: CPU of the server per delivered message, µs", "%.2f", columns...)
	last := newTable("until the last has the last, ms", "%.1f", columns...)
	for range cfg.passes {
		for _, to := range publishes {
			for _, c := range cfg.contenders {
				cpuMicros, lastMillis := deliver(c, to.subscribers, to.burst)
				cpu.add(c.name, to.name, cpuMicros)
				last.add(c.name, to.name, lastMillis)
			}
		}
	}
	cpu.print()
	cpu.printRatios()
	last.print()
}

// deliver publishes bursts to all subscribers and waits until everybody has
// everything, ten times.
func deliver(c contender, subscribers, burst int) (cpuMicros, lastMillis float64) {
	const rounds = 10
	p := start(c)
	defer p.stop()
	var got sync.WaitGroup
	next := make([]chan struct{}, subscribers)
	for i := range next {
		next[i] = make(chan struct{}, 1)
		cl, err := dial(p.addr, c)
		check(err)
		go func() {
			defer cl.close()
			for range next[i] {
				check(cl.await(burst))
				got.Done()
			}
		}()
	}
	time.Sleep(200 * time.Millisecond)
	var took []float64
	round := func() {
		got.Add(subscribers)
		for _, n := range next {
			n <- struct{}{}
		}
		began := time.Now()
		p.command(fmt.Sprint("publish ", burst))
		got.Wait()
		took = append(took, float64(time.Since(began).Microseconds())/1000)
	}
	round()
	took = nil
	before := p.command("stats")
	for range rounds {
		round()
	}
	after := p.command("stats")
	for _, n := range next {
		close(n)
	}
	slices.Sort(took)
	return float64(after.CPU-before.CPU) / 1000 / float64(rounds*subscribers*burst), took[len(took)/2]
}
