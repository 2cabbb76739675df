package main

import (
	"crypto/tls"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// roundTripsTLS measures round trips over TLS 1.3.
func roundTripsTLS(cfg config) {
	measureCells(overTLS(cfg), setup{secure: true}, "round trips over TLS, connections x requests in flight", "tls")
}

// overTLS removes the contenders that have no TLS.
func overTLS(cfg config) config {
	cfg.contenders = slices.DeleteFunc(slices.Clone(cfg.contenders), func(c contender) bool { return c.plain })
	return cfg
}

// handshakeTLS measures how many TLS connections a server opens, with all of the handshake and with a
// session that is resumed. The rate is that of a CPU of the server: the client needs more CPU time
// than the server, so the wall-clock time would be the client's.
func handshakeTLS(cfg config) {
	const full, resumed = "full", "resumed"
	cpu := newTable(fmt.Sprintf("%d TLS connections: CPU of the server to open one, µs", handshakes), "%.1f", full, resumed).named("tlshandshake")
	rate := newTable("handshakes per CPU second of the server", "%.0f", full, resumed).named("tlshandshake, rate")
	add := func(c contender, column string, micros float64) {
		cpu.add(c.name, column, micros)
		rate.add(c.name, column, 1e6/micros)
	}
	cfg = overTLS(cfg)
	for range cfg.passes {
		for _, c := range cfg.contenders {
			opened, _ := openAndClose(c, setup{secure: true})
			add(c, full, opened)
			if opened, ok := openResumed(c); ok {
				add(c, resumed, opened)
			}
		}
	}
	cpu.print()
	cpu.printRatios()
	rate.print()
}

// openResumed returns the CPU time per connection that resumes a TLS session, in µs. ok is false if
// the server does not resume sessions.
func openResumed(c contender) (micros float64, ok bool) {
	p := start(c, setup{secure: true})
	defer p.stop()
	p.sessions = tls.NewLRUClientSessionCache(1)
	exchange(p, c).close() // reads the ticket, which follows the handshake
	clients := dialAll(p, c, 200)
	closeAll(clients)
	if !clients[0].resumed() {
		return 0, false
	}
	time.Sleep(200 * time.Millisecond)
	before := p.command("stats")
	clients = dialAll(p, c, handshakes)
	time.Sleep(200 * time.Millisecond)
	after := p.command("stats")
	for _, cl := range clients {
		if !cl.resumed() {
			fatal(fmt.Errorf("%s: a session was not resumed", c.name))
		}
	}
	closeAll(clients)
	return cpuMicros(before, after) / handshakes, true
}

func (c *client) resumed() bool { return c.conn.(*tls.Conn).ConnectionState().DidResume }

// tlsStorm measures a server to which all clients reconnect at the same time, with complete TLS
// handshakes, as after a failure of the network.
func tlsStorm(cfg config) {
	const idle, peak, seconds, cpu = "idle RSS", "peak RSS", "seconds", "CPU µs"
	results := newTable(fmt.Sprintf("%d TLS connections reconnect at once: bytes per connection before and at most, time until the last reply, CPU of the server per connection", cfg.conns), "%.2f", idle, peak, seconds, cpu).named("tlsstorm")
	cfg = overTLS(cfg)
	n := float64(cfg.conns)
	for range cfg.passes {
		for _, c := range cfg.contenders {
			p := start(c, setup{secure: true})
			exchange(p, c).close()
			empty := p.command("collect")
			clients := openConns(cfg.conns, func() *client { return exchange(p, c) })
			time.Sleep(200 * time.Millisecond)
			before := p.command("collect")
			p.resetPeak()
			began := time.Now()
			closeAll(clients)
			clients = reconnect(p, c, cfg.conns)
			took := time.Since(began)
			after := p.command("stats")
			results.add(c.name, idle, float64(before.RSS-empty.RSS)/n)
			results.add(c.name, peak, float64(p.peakRSS()-empty.RSS)/n)
			results.add(c.name, seconds, took.Seconds())
			results.add(c.name, cpu, cpuMicros(before, after)/n)
			closeAll(clients)
			p.stop()
		}
	}
	results.print()
	results.printRatios()
}

// reconnect opens n connections at the same time and exchanges a message on each.
func reconnect(p *process, c contender, n int) []*client {
	clients := make([]*client, n)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() { clients[i] = exchange(p, c) })
	}
	wg.Wait()
	return clients
}

// resetPeak makes peakRSS forget what has been used until now.
func (p *process) resetPeak() {
	check(os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0)) // proc(5)
}

// peakRSS returns the largest resident memory of the process in bytes.
func (p *process) peakRSS() int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	check(err)
	for line := range strings.Lines(string(status)) {
		var kilobytes int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); err == nil {
			return kilobytes * 1024
		}
	}
	fatal(fmt.Errorf("the kernel does not report the peak of the resident memory"))
	return 0
}
