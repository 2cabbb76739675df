package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// latency measures what other goroutines and connections notice of a busy or a blocked one.
func latency(cfg config) {
	handOver(cfg)
	allBlocked(cfg)
	delays(cfg)
	fairness(cfg)
}

// waiting calls measure for each contender that answers Wait, with one and with two processors.
func waiting(cfg config, measure func(c contender, how setup, row string)) {
	for range cfg.passes {
		for _, c := range cfg.contenders {
			for _, procs := range []int{1, 2} {
				if c.waits {
					measure(c, setup{procs: procs}, fmt.Sprintf("%s, %d CPU", c.name, procs))
				}
			}
		}
	}
}

// handOver measures bursts of requests, one of whose handlers may block.
func handOver(cfg config) {
	const conns, trials, block = 64, 100, 20 * time.Millisecond
	columns := []string{"p50", "p90", "worst p50", "worst p90"}
	free := newTable("bursts of 64 requests on 64 connections: latency of 63 of them, µs; their worst in each burst", "%.0f", columns...)
	blocked := newTable("the same if the handler of the other one blocks for 20 ms", "%.0f", columns...)
	waiting(cfg, func(c contender, how setup, row string) {
		p := start(c, how)
		defer p.stop()
		b := newBursts(p, c, conns)
		defer b.close()
		all, worst := map[*table][]time.Duration{}, map[*table][]time.Duration{}
		for trial := range 2 * trials {
			results, other := free, trial%conns
			frames := b.requests(c, trial)
			if trial%2 == 1 {
				results, frames[other] = blocked, masked(wait(block))
			}
			time.Sleep(block) // so that client and server have been quiet for as long before each burst
			took := slices.Delete(b.send(frames), other, other+1)
			all[results], worst[results] = append(all[results], took...), append(worst[results], slices.Max(took))
		}
		for _, results := range []*table{free, blocked} {
			results.add(row, "p50", micros(percentile(all[results], 50)))
			results.add(row, "p90", micros(percentile(all[results], 90)))
			results.add(row, "worst p50", micros(percentile(worst[results], 50)))
			results.add(row, "worst p90", micros(percentile(worst[results], 90)))
		}
	})
	free.print()
	blocked.print()
}

// allBlocked measures when the last of many handlers that block starts.
func allBlocked(cfg config) {
	const conns, block = 63, time.Second
	const last, quick = "last start, ms", "another request, µs"
	results := newTable("63 handlers block for a second: time until the last starts; 90th percentile of 50 requests of another connection meanwhile", "%.1f", last, quick)
	waiting(cfg, func(c contender, how setup, row string) {
		p := start(c, how)
		defer p.stop()
		b, other := newBursts(p, c, conns), newBursts(p, c, 1)
		defer b.close()
		defer other.close()
		b.send(b.requests(c, 0)) // the first requests of a process take longer
		var wg sync.WaitGroup
		wg.Go(func() {
			took := b.send(slices.Repeat([][]byte{masked(wait(block))}, conns))
			results.add(row, last, micros(slices.Max(took)-block)/1000)
		})
		var quickly []time.Duration
		for n := range 50 {
			time.Sleep(10 * time.Millisecond)
			quickly = append(quickly, other.send(other.requests(c, n))...)
		}
		wg.Wait()
		results.add(row, quick, micros(percentile(quickly, 90)))
	})
	results.print()
}

// Bursts are requests on several connections at once.
type bursts struct {
	clients  []*client
	sent     []time.Time
	received []time.Time
	pending  sync.WaitGroup
	closed   atomic.Bool
}

func newBursts(p *process, c contender, conns int) *bursts {
	b := &bursts{clients: make([]*client, conns), sent: make([]time.Time, conns), received: make([]time.Time, conns)}
	for i := range b.clients {
		cl := exchange(p, c)
		b.clients[i] = cl
		go func() {
			for {
				if err := cl.await(1); err != nil {
					if !b.closed.Load() {
						fatal(fmt.Errorf("%s: %w", c.name, err))
					}
					return
				}
				b.received[i] = time.Now()
				b.pending.Done()
			}
		}()
	}
	return b
}

func (b *bursts) requests(c contender, n int) [][]byte {
	frames := make([][]byte, len(b.clients))
	for i := range frames {
		frames[i] = masked(c.request((n*len(frames) + i) % distinct))
	}
	return frames
}

// send sends a request on each connection and returns the latencies.
func (b *bursts) send(frames [][]byte) []time.Duration {
	b.pending.Add(len(frames))
	for i, frame := range frames {
		b.sent[i] = time.Now()
		_, err := b.clients[i].conn.Write(frame)
		check(err)
	}
	b.pending.Wait()
	took := make([]time.Duration, len(frames))
	for i := range took {
		took[i] = b.received[i].Sub(b.sent[i])
	}
	return took
}

func (b *bursts) close() {
	b.closed.Store(true)
	for _, cl := range b.clients {
		cl.close()
	}
}

// percentile returns the value that p percent of the values do not exceed.
func percentile(values []time.Duration, p int) time.Duration {
	if len(values) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(values))[(len(values)*p-1)/100]
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
