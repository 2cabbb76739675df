package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// stormMissed is how many publications of its room a client misses while it is away.
const stormMissed = 10

// stormSpread is the time within which the clients of a deploy return. If it is 0, Penstock says when each
// client returns, and those of the others return within a second.
var stormSpread time.Duration

// A stormPeer is a server, and how its clients enter and return.
type stormPeer struct {
	name      string
	contender string // of -only
	server    func() contender
	protocol  stormProtocol
}

var stormPeers = []stormPeer{
	{"penstock", "penstock", func() contender { return variant("storm") }, penstockProtocol(false)},
	{"penstock, sessions", "penstock", func() contender { return variant("storm") }, penstockProtocol(true)},
	{"centrifuge", "centrifuge", func() contender { return variant("storm centrifuge") }, centrifugeProtocol()},
	{"bun", "bun", func() contender { return find(contenders, "bun") }, bunProtocol},
}

// The phases of a storm.
const (
	stormAccept    = "accept"
	stormSubscribe = "subscribe"
	stormResume    = "resume"
	stormDeploy    = "deploy"
)

// storms measures what it costs when all clients do the same at once.
func storms(cfg config) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		fmt.Println("\nstorms: skipped, redis-server is not installed")
		return
	}
	columns := []string{stormAccept, stormSubscribe, stormResume, stormDeploy}
	results := stormResults{
		cpu:   newTable(fmt.Sprintf("%d clients at once: CPU of the servers per client, µs", cfg.conns), "%.1f", columns...).named("storms"),
		redis: newTable("CPU of the Redis server per client, µs", "%.1f", columns...).named("storms, Redis"),
		last:  newTable("time until the last client has everything, ms", "%.0f", columns...).named("storms, last"),
		peak:  newTable("highest RSS of the server that the clients go to, bytes per client", "%.0f", columns...).named("storms, RSS"),
	}
	for range cfg.passes {
		for _, peer := range stormPeers {
			if slices.ContainsFunc(cfg.contenders, func(c contender) bool { return c.name == peer.contender }) {
				measureStorm(cfg.conns, peer, results)
			}
		}
	}
	results.cpu.print()
	results.cpu.printRatios()
	results.redis.print()
	results.last.print()
	results.last.printRatios()
	results.peak.print()
}

type stormResults struct{ cpu, redis, last, peak *table }

// A storm is one run: a server, its Redis server and its clients.
type storm struct {
	peer    stormPeer
	results stormResults
	how     setup
	redis   *goredis.Client
	clients []*stormClient
}

func measureStorm(n int, peer stormPeer, results stormResults) {
	addr, stop := startRedis()
	defer stop()
	s := &storm{peer: peer, results: results, redis: goredisClient(addr)}
	defer func() { _ = s.redis.Close() }()
	s.how = setup{env: []string{redisAddr + "=" + addr, stormRooms + "=" + strconv.Itoa((n+roomMembers-1)/roomMembers)}}
	p := start(peer.server(), s.how)
	defer p.stop()
	for i := range n {
		s.clients = append(s.clients, &stormClient{topic: "room/" + strconv.Itoa(i/roomMembers)})
	}
	defer func() { s.each(func(c *stormClient) { c.close() }) }()

	s.phase(stormAccept, p, nil, func() { s.each(func(c *stormClient) { check(c.enter(p, peer.protocol)) }) })
	if !peer.protocol.recovers {
		s.deploy(p, 0)
		return
	}
	s.phase(stormSubscribe, p, nil, func() { s.each(func(c *stormClient) { check(peer.protocol.subscribe(c)) }) })
	s.each(func(c *stormClient) { c.close() })
	time.Sleep(2 * time.Second) // until the server has closed its connections
	p.command(fmt.Sprint("publish ", stormMissed))
	s.phase(stormResume, p, nil, func() {
		s.each(func(c *stormClient) { check(c.open(p, peer.protocol)); check(peer.protocol.resume(c, stormMissed)) })
	})
	s.deploy(p, stormMissed)
}

// deploy starts another server and shuts the first one down. Clients that recover miss a publication.
func (s *storm) deploy(old *process, offset int) {
	p := start(s.peer.server(), s.how)
	defer p.stop()
	s.phase(stormDeploy, p, old, func() {
		var wg sync.WaitGroup
		for _, c := range s.clients {
			wg.Go(func() { check(c.move(p, s.peer.protocol, offset+1)) })
		}
		old.command("deploy")
		time.Sleep(500 * time.Millisecond)
		p.command("publish 1")
		wg.Wait()
	})
}

// phase measures what the server p, the one that it replaces and the Redis server do during run.
func (s *storm) phase(column string, p, old *process, run func()) {
	resetPeak(p)
	cpu := func() (d time.Duration) {
		if old != nil {
			d = old.command("stats").CPU
		}
		return d + p.command("stats").CPU
	}
	before, redis, started := cpu(), redisCPU(s.redis), time.Now()
	run()
	elapsed, n := time.Since(started), float64(len(s.clients))
	s.results.last.add(s.peer.name, column, float64(elapsed.Microseconds())/1e3)
	s.results.cpu.add(s.peer.name, column, float64(cpu()-before)/1e3/n)
	s.results.redis.add(s.peer.name, column, (redisCPU(s.redis)-redis)*1e6/n)
	s.results.peak.add(s.peer.name, column, peak(p)/n)
}

// each calls f for all clients, on 256 goroutines.
func (s *storm) each(f func(c *stormClient)) {
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 256 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(s.clients)); i = next.Add(1) - 1 {
				f(s.clients[i])
			}
		})
	}
	wg.Wait()
}

// resetPeak makes peak forget the past of a process, on Linux.
func resetPeak(p *process) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0)
}

// peak returns the highest RSS of a process, in bytes, or 0 on other systems than Linux.
func peak(p *process) float64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	for line := range strings.Lines(string(status)) {
		var kilobytes float64
		if _, err := fmt.Sscanf(line, "VmHWM: %g kB", &kilobytes); err == nil {
			return kilobytes * 1024
		}
	}
	return 0
}
