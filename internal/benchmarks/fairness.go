package main

import (
	"bufio"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// fairness measures the latency of many quiet connections while another one sends as fast as it can.
func fairness(cfg config) {
	columns := []string{"p50", "p99", "max"}
	alone := newTable("1,000 connections, of which one sends a request every millisecond: latency, µs", "%.0f", columns...)
	during := newTable("the same while another connection sends without pause", "%.0f", columns...)
	flooded := newTable("requests of that connection that are answered, thousands per second", "%.0f", "rate")
	for range cfg.passes {
		for _, c := range cfg.contenders {
			p := start(c, setup{})
			b := newBursts(p, c, 1000)
			add(alone, c, b.oneByOne(c))
			f := startFlood(p, c)
			time.Sleep(200 * time.Millisecond)
			var before, after int
			f.query("", &before)
			started := time.Now()
			add(during, c, b.oneByOne(c))
			f.query("", &after)
			flooded.add(c.name, "rate", float64(after-before)/1000/time.Since(started).Seconds())
			f.stop()
			b.close()
			p.stop()
		}
	}
	alone.print()
	during.print()
	during.printRatios()
	flooded.print()
}

func add(results *table, c contender, took []time.Duration) {
	for i, value := range percentiles(took) {
		results.add(c.name, results.columns[i], micros(value))
	}
}

// oneByOne sends a request per millisecond, each on the next connection, without waiting for replies,
// and returns the latencies. A request that could be sent only later counts from when it was due.
func (b *bursts) oneByOne(c contender) []time.Duration {
	const rounds = 2
	frames := b.requests(c, 0)
	var all []time.Duration
	for range rounds {
		b.pending.Add(len(frames))
		begin := time.Now()
		for i, frame := range frames {
			b.sent[i] = begin.Add(time.Duration(i) * time.Millisecond)
			if early := time.Until(b.sent[i]); early > 0 {
				time.Sleep(early)
				b.sent[i] = time.Now() // the timer's delay is the client's
			}
			_, err := b.clients[i].conn.Write(frame)
			check(err)
		}
		b.pending.Wait()
		for i := range frames {
			all = append(all, b.received[i].Sub(b.sent[i]))
		}
	}
	return all
}

// startFlood starts a process with a connection that sends requests without waiting for replies. In the
// process that measures, it would delay the goroutines of the other connections.
func startFlood(server *process, c contender) *process {
	self, err := os.Executable()
	check(err)
	return spawn([]string{self, "-flood", server.addr, "-only", c.name}, os.Environ())
}

// floodServer is the main function of that process. For each line of standard input, it prints the
// number of replies.
func floodServer(addr string, c contender) {
	const piece = 256 // requests per write
	cl := exchange(&process{addr: addr}, c)
	requests := newRequests(c, piece, masked)
	_, err := cl.conn.Write(requests.burst(1))
	check(err)
	buffer := make([]byte, 64<<10)
	size, err := cl.conn.Read(buffer) // of a reply
	check(err)
	var received atomic.Int64 // bytes
	go func() {
		for {
			n, err := cl.conn.Read(buffer)
			check(err)
			received.Add(int64(n))
		}
	}()
	go func() {
		for {
			_, err := cl.conn.Write(requests.burst(piece))
			check(err)
		}
	}()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(received.Load() / int64(size))
	}
}
