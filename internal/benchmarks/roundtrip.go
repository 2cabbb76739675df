package main

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// measured is the duration of a measurement.
var measured = time.Second

// A cell is a load: the number of connections, and of requests in flight on each.
type cell struct{ conns, window int }

func (c cell) String() string { return fmt.Sprintf("%dx%d", c.conns, c.window) }

// roundTrips measures the CPU time and allocations of the server per request and reply.
func roundTrips(cfg config) {
	measureCells(cfg, setup{}, "round trips, connections x requests in flight", "roundtrip")
}

// events measures the same for events with one text, which the server answers with events.
func events(cfg config) {
	defer func(n int) { distinct = n }(distinct)
	distinct = 1
	var told []contender
	for _, c := range cfg.contenders {
		if c.tells {
			c.request = tell
			told = append(told, c)
		}
	}
	cfg.contenders = told
	measureCells(cfg, setup{}, "events with one text, connections x events in flight", "events")
}

func measureCells(cfg config, how setup, title, suite string) {
	var columns []string
	for _, at := range cfg.cells {
		columns = append(columns, at.String())
	}
	cpu := newTable(title+": CPU of the server per message, µs", "%.2f", columns...).named(suite)
	user := newTable("user time of it, µs", "%.2f", columns...)
	allocs := newTable("allocations per message", "%.1f", columns...)
	rate := newTable("messages per second, thousands", "%.0f", columns...)
	for range cfg.passes {
		servers := make([]*process, len(cfg.contenders))
		for i, c := range cfg.contenders {
			servers[i] = start(c, how)
			warmUp(servers[i], c)
		}
		for _, at := range cfg.cells {
			for i, c := range cfg.contenders {
				r := roundTrip(servers[i], c, at)
				cpu.add(c.name, at.String(), r.cpuMicros)
				user.add(c.name, at.String(), r.userMicros)
				if c.command == nil {
					allocs.add(c.name, at.String(), r.allocs)
				}
				rate.add(c.name, at.String(), r.perSecond/1000)
			}
		}
		for _, p := range servers {
			p.stop()
		}
	}
	cpu.print()
	cpu.printRatios()
	user.print()
	allocs.print()
	rate.print()
}

// warmUp lets a server compile what it compiles at run time, and fill its pools.
func warmUp(p *process, c contender) {
	l := startLoad(p, c, cell{64, 16})
	defer l.end()
	time.Sleep(500 * time.Millisecond)
}

// A result is the outcome of one cell, per message and per second.
type result struct{ cpuMicros, userMicros, allocs, perSecond float64 }

func roundTrip(p *process, c contender, at cell) result {
	l := startLoad(p, c, at)
	defer l.end()
	time.Sleep(200 * time.Millisecond)
	if path := os.Getenv(profileTo); path != "" {
		p.command("profile " + path)
	}
	before, n, started := p.command("stats"), l.done.Load(), time.Now()
	time.Sleep(measured)
	after, elapsed := p.command("stats"), time.Since(started)
	messages := float64(l.done.Load() - n)
	return result{
		cpuMicros:  float64(after.CPU-before.CPU) / 1000 / messages,
		userMicros: float64(after.User-before.User) / 1000 / messages,
		allocs:     float64(after.Allocs-before.Allocs) / messages,
		perSecond:  messages / elapsed.Seconds(),
	}
}

// A load is a number of clients that keep requests in flight.
type load struct {
	done    atomic.Int64 // replies
	stopped atomic.Bool
	wg      sync.WaitGroup
}

func startLoad(p *process, c contender, at cell) *load {
	l := &load{}
	requests := newRequests(c, at.window, p.encode)
	clients := make([]*client, at.conns)
	for i := range clients {
		var err error
		clients[i], err = dial(p, c)
		check(err)
	}
	for i, cl := range clients {
		l.wg.Go(func() {
			defer cl.close()
			err := cl.flood(requests.from(i), at.window, func(n int) { l.done.Add(int64(n)) }, l.stopped.Load)
			if err != nil && !l.stopped.Load() {
				check(fmt.Errorf("%s: %w", c.name, err))
			}
		})
	}
	return l
}

func (l *load) end() {
	l.stopped.Store(true)
	l.wg.Wait()
}
