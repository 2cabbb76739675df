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
	{"1 to 9,000", 9000, 1},
}

// fanOut measures the CPU time of the server per delivered message.
func fanOut(cfg config) {
	var columns []string
	for _, to := range publishes {
		columns = append(columns, to.name)
	}
	cpu := newTable("200 bytes published to subscribers: CPU of the server per delivered message, µs", "%.2f", columns...)
	last := newTable("time until the last subscriber has the last message, ms", "%.1f", columns...)
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

// deliver publishes a burst to all subscribers and waits until all of them have received it, ten times.
func deliver(c contender, subscribers, burst int) (cpuMicros, lastMillis float64) {
	const rounds = 10
	p := start(c, setup{})
	defer p.stop()
	var received sync.WaitGroup
	next := make([]chan struct{}, subscribers)
	for i := range next {
		next[i] = make(chan struct{}, 1)
		cl, err := dial(p, c)
		check(err)
		go func() {
			defer cl.close()
			for range next[i] {
				check(cl.await(burst))
				received.Done()
			}
		}()
	}
	time.Sleep(200 * time.Millisecond)
	var elapsed []float64
	round := func() {
		received.Add(subscribers)
		for _, n := range next {
			n <- struct{}{}
		}
		started := time.Now()
		p.command(fmt.Sprint("publish ", burst))
		received.Wait()
		elapsed = append(elapsed, float64(time.Since(started).Microseconds())/1000)
	}
	round()
	elapsed = nil
	before := p.command("stats")
	for range rounds {
		round()
	}
	after := p.command("stats")
	for _, n := range next {
		close(n)
	}
	slices.Sort(elapsed)
	return float64(after.CPU-before.CPU) / 1000 / float64(rounds*subscribers*burst), elapsed[len(elapsed)/2]
}
