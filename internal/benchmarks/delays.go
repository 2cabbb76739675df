package main

import "time"

// Delays are how late goroutines of a server run that have nothing to do with its connections.
type Delays struct {
	Timer []time.Duration // percentiles 50, 99, 100 of time.Sleep(time.Millisecond) beyond a millisecond
	Start []time.Duration // of the time from a go statement until the goroutine runs
}

// delays measures Delays while 64 connections have 16 requests in flight each.
func delays(cfg config) {
	columns := []string{"p50", "p99", "max"}
	timer := newTable("goroutine of the server that sleeps for 1 ms, under the load 64x16: how late it is, µs", "%.0f", columns...)
	started := newTable("goroutine that another one starts, under the same load: delay, µs", "%.1f", columns...)
	const rate, cpu = "thousands per second", "CPU µs"
	messages := newTable("messages of this load: answered, and CPU of the server for one", "%.2f", rate, cpu)
	waiting(cfg, func(c contender, how setup, row string) {
		p := start(c, how)
		defer p.stop()
		l := startLoad(p, c, cell{64, 16})
		defer l.end()
		time.Sleep(200 * time.Millisecond)
		var d Delays
		before, n, began := p.command("stats"), l.done.Load(), time.Now()
		p.query("delays", &d)
		after, elapsed, answered := p.command("stats"), time.Since(began), float64(l.done.Load()-n)
		messages.add(row, rate, answered/elapsed.Seconds()/1000)
		messages.add(row, cpu, float64(after.CPU-before.CPU)/1000/answered)
		for i, column := range columns {
			timer.add(row, column, micros(d.Timer[i]))
			started.add(row, column, micros(d.Start[i]))
		}
	})
	timer.print()
	started.print()
	messages.print()
}

// measureDelays measures for a second, in the server.
func measureDelays() Delays {
	var late, start []time.Duration
	for begin := time.Now(); time.Since(begin) < time.Second; {
		slept := time.Now()
		time.Sleep(time.Millisecond)
		late = append(late, time.Since(slept)-time.Millisecond)

		running := make(chan time.Time)
		started := time.Now()
		go func() { running <- time.Now() }()
		start = append(start, (<-running).Sub(started))
	}
	return Delays{Timer: percentiles(late), Start: percentiles(start)}
}

func percentiles(values []time.Duration) []time.Duration {
	return []time.Duration{percentile(values, 50), percentile(values, 99), percentile(values, 100)}
}
