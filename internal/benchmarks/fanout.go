package main

import (
	"fmt"
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
func deliver(c contender, n, burst int) (cpuMicros, lastMillis float64) {
	p := start(c, setup{})
	defer p.stop()
	s := subscribe(p, c, n)
	defer s.close()
	time.Sleep(200 * time.Millisecond)
	return s.deliver(burst)
}

// Subscribers are connections that receive what a server publishes.
type subscribers struct {
	p        *process
	next     []chan int // how many messages the subscriber shall await
	received sync.WaitGroup
}

func subscribe(p *process, c contender, n int) *subscribers {
	s := &subscribers{p: p, next: make([]chan int, n)}
	for i := range s.next {
		s.next[i] = make(chan int, 1)
		cl := exchange(p, c)
		go func() {
			defer cl.close()
			for burst := range s.next[i] {
				check(cl.await(burst))
				s.received.Done()
			}
		}()
	}
	return s
}

func (s *subscribers) close() {
	for _, next := range s.next {
		close(next)
	}
}

// deliver publishes bursts. It returns the CPU time per delivery, and the median of the time until the
// last subscriber has received the burst.
func (s *subscribers) deliver(burst int) (cpuMicros, lastMillis float64) {
	const rounds = 10
	var elapsed []float64
	round := func() {
		s.received.Add(len(s.next))
		for _, next := range s.next {
			next <- burst
		}
		time.Sleep(20 * time.Millisecond) // so that all of them wait in Read
		started := time.Now()
		s.p.command(fmt.Sprint("publish ", burst))
		s.received.Wait()
		elapsed = append(elapsed, float64(time.Since(started).Microseconds())/1000)
	}
	round()
	elapsed = nil
	before := s.p.command("stats")
	for range rounds {
		round()
	}
	after := s.p.command("stats")
	return float64(after.CPU-before.CPU) / 1000 / float64(rounds*len(s.next)*burst), median(elapsed)
}
