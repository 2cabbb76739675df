package main

import (
	"fmt"
	"slices"
	"time"
)

// A size is how long the messages of the compression suite are.
type size struct {
	name    string
	request func(n int) string
	reply   string // its beginning
	publish func(n int) []byte
	texts   int // different requests at most

	// publications is the number of different publications. They are longer than a window of 32 KiB
	// together, so that a compressor that keeps one does not find a message in it again.
	publications int
}

var sizes = []size{
	{"200 bytes", say, `{"type":"SAID"`, publishSaid, 4096, 256},
	{"16 KiB", save, `{"type":"SAVED"`, publishSaved, 256, 4},
}

// publishSaid returns the nth message of 200 bytes that is published.
func publishSaid(n int) []byte {
	return fmt.Appendf(nil, `{"type":"SAID","meta":{"timestamp":1730000000000},"payload":%s}`, payload(n))
}

// compression measures messages that are compressed in both directions: round trips, publications,
// and the memory of connections.
func compression(cfg config) {
	cfg.contenders = compressing(cfg.contenders)
	for _, of := range sizes {
		of.measure(cfg)
	}
}

// compressing returns the contenders that can compress. Penstock and Bun are two contenders each.
func compressing(all []contender) []contender {
	var found []contender
	for _, c := range all {
		if !c.compresses {
			continue
		}
		c.env = []string{deflateMode + "=shared"}
		found = append(found, c)
		if mode, ok := windowModes[c.name]; ok {
			c.name, c.env = c.name+"-"+mode, []string{deflateMode + "=" + mode}
			found = append(found, c)
		}
	}
	return found
}

// windowModes has the deflateMode in which a contender keeps windows.
var windowModes = map[string]string{"penstock": "window", "bun": "dedicated"}

// measure measures messages of this size.
func (of size) measure(cfg config) {
	defer func(n int, messages [][]byte) { distinct, publications = n, messages }(distinct, publications)
	distinct, publications = min(distinct, of.texts), nil
	for n := range of.publications {
		publications = append(publications, of.publish(n))
	}
	cfg.contenders = slices.Clone(cfg.contenders)
	for i := range cfg.contenders {
		cfg.contenders[i].request = of.request
	}
	how := setup{deflates: true, reply: of.reply}
	suite := "compression, " + of.name
	measureCells(cfg, how, of.name+" compressed, round trips, connections x requests in flight", suite)
	of.measurePublications(cfg, how, suite+", published")
	openAll(cfg, suite+", idle", cfg.conns, how, fmt.Sprintf("%d idle connections, each after a compressed message of %s in both directions: bytes per connection, and goroutines", cfg.conns, of.name))
}

// measurePublications measures publications to a few and to many subscribers.
func (of size) measurePublications(cfg config, how setup, name string) {
	publishes := []struct {
		name               string
		subscribers, burst int
	}{
		{"32 to 1", 1, 32},
		{"1 to 1,000", 1000, 1},
		{fmt.Sprintf("1 to %d", cfg.conns), cfg.conns, 1},
	}
	var columns []string
	for _, to := range publishes {
		columns = append(columns, to.name)
	}
	cpu := newTable(of.name+" compressed and published to subscribers: CPU of the server per delivered message, µs", "%.2f", columns...).named(name)
	last := newTable("time until the last subscriber has the last message, ms", "%.1f", columns...)
	for range cfg.passes {
		for _, to := range publishes {
			for _, c := range cfg.contenders {
				p := start(c, how)
				s := subscribe(p, c, to.subscribers)
				time.Sleep(200 * time.Millisecond)
				micros, lastMillis := s.deliver(to.burst)
				cpu.add(c.name, to.name, micros-s.commandMicros()/float64(to.subscribers*to.burst))
				last.add(c.name, to.name, lastMillis)
				s.close()
				p.stop()
			}
		}
	}
	cpu.print()
	cpu.printRatios()
	last.print()
}

// commandMicros returns the CPU time of a command that publishes nothing.
func (s *subscribers) commandMicros() float64 {
	const rounds = 10
	before := s.p.command("stats")
	for range rounds {
		time.Sleep(20 * time.Millisecond) // as deliver does
		s.p.command("publish 0")
	}
	return cpuMicros(before, s.p.command("stats")) / rounds
}
