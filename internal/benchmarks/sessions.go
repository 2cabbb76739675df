package main

import (
	"fmt"
	"os/exec"
	"time"
)

// sessionCount is the number of sessions of the sessions suite.
const sessionCount = 4000

// sessions measures what a session costs: its record on the Redis server, and memory of the node.
func sessions(cfg config) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		fmt.Println("\nsessions: skipped, redis-server is not installed")
		return
	}
	const heap, stored, cpu, in, out = "heap", "bytes on Redis", "Redis CPU µs per write", "bytes to Redis", "bytes from Redis"
	results := newTable(fmt.Sprintf("%d sessions with one topic each", sessionCount), "%.1f", heap, stored, cpu, in, out).named("sessions")
	for range cfg.passes {
		r := openSessions(variant("no session"))
		results.add("no session", heap, r.heap/sessionCount)
		r = openSessions(variant("session"))
		results.add("session", heap, r.heap/sessionCount)
		results.add("session", stored, r.memory/sessionCount)
		results.add("session", cpu, r.cpu*1e6/r.writes)
		results.add("session", in, r.in/r.writes)
		results.add("session", out, r.out/r.writes)
	}
	results.print()
	results.printDifference("session", "no session", 1, heap)
}

// A sessionCost is what the connections of the sessions suite cost together.
type sessionCost struct {
	heap                         float64 // bytes
	memory, cpu, writes, in, out float64 // on the Redis server: bytes, and CPU seconds
}

func openSessions(c contender) (r sessionCost) {
	addr, stop := startRedis()
	defer stop()
	server := goredisClient(addr)
	defer func() { _ = server.Close() }()
	p := start(c, setup{env: []string{redisAddr + "=" + addr}})
	defer p.stop()
	first := exchange(p, c) // stores the scripts
	defer first.close()
	time.Sleep(time.Second)
	quiet, heap := redisIdle(server), p.command("collect").Heap
	memory, writes, before, started := redisInfo(server, "memory", "used_memory"), scriptCalls(server), snapshot(server), time.Now()
	// One after the other, because records that are written at about the same time share a script call.
	turn := time.NewTicker(8 * time.Millisecond)
	defer turn.Stop()
	clients := openConns(sessionCount, func() *client { <-turn.C; return exchange(p, c) })
	defer closeAll(clients)
	used := snapshot(server).since(before)
	r = sessionCost{writes: scriptCalls(server) - writes, cpu: used.redis - quiet*time.Since(started).Seconds(), in: used.in, out: used.out}
	time.Sleep(time.Second)
	r.memory = redisInfo(server, "memory", "used_memory") - memory
	r.heap = float64(p.command("collect").Heap) - float64(heap)
	return r
}
