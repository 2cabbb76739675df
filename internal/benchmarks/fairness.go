package main

import (
	"sync/atomic"
	"time"
)

// fairness measures the latency of many quiet connections beside one that sends as fast as it can.
func fairness(cfg config) {
	columns := []string{"p50", "p99", "max"}
	alone := newTable("1,000 connections, of which one sends a request every millisecond: latency, µs", "%.0f", columns...)
	beside := newTable("the same beside a connection that sends without pause", "%.0f", columns...)
	flooded := newTable("requests of that connection that are answered, thousands per second", "%.0f", "rate")
	for range cfg.passes {
		for _, c := range cfg.contenders {
			p := start(c, setup{})
			b := newBursts(p, c, 1000)
			add(alone, c, b.oneByOne(c))
			f := startFlood(p, c)
			time.Sleep(200 * time.Millisecond)
			replies, started := f.replies.Load(), time.Now()
			add(beside, c, b.oneByOne(c))
			flooded.add(c.name, "rate", float64(f.replies.Load()-replies)/1000/time.Since(started).Seconds())
			f.end()
			b.close()
			p.stop()
		}
	}
	alone.print()
	beside.print()
	beside.printRatios()
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

// A flooding is a connection that sends requests without waiting for replies.
type flooding struct {
	replies atomic.Int64
	stopped atomic.Bool
	client  *client
}

// startFlood sends and receives in large pieces, so that it uses little of the client's processor.
func startFlood(p *process, c contender) *flooding {
	const piece = 256
	f := &flooding{client: exchange(p, c)}
	requests := newRequests(c, piece)
	reply := len(f.exchangeOnce(requests.burst(1)))
	go func() {
		for !f.stopped.Load() {
			if _, err := f.client.conn.Write(requests.burst(piece)); err != nil {
				f.failed(err)
				return
			}
		}
	}()
	go func() {
		buffer := make([]byte, 64<<10)
		bytes := 0
		for {
			n, err := f.client.conn.Read(buffer)
			if err != nil {
				f.failed(err)
				return
			}
			bytes += n
			f.replies.Store(int64(bytes / reply))
		}
	}()
	return f
}

// exchangeOnce sends a request and returns the frame of the reply, which arrives at once.
func (f *flooding) exchangeOnce(request []byte) []byte {
	_, err := f.client.conn.Write(request)
	check(err)
	buffer := make([]byte, 4096)
	n, err := f.client.conn.Read(buffer)
	check(err)
	return buffer[:n]
}

func (f *flooding) failed(err error) {
	if !f.stopped.Load() {
		fatal(err)
	}
}

func (f *flooding) end() {
	f.stopped.Store(true)
	f.client.close()
}
