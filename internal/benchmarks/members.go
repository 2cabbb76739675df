package main

import (
	"fmt"
	"os/exec"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	rooms       = 40
	roomMembers = 100
	members     = rooms * roomMembers
)

// presence measures what a subscription and a member cost: on the node of the member, on another node
// with a member of the same room, and on the Redis server.
func presence(cfg config) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		fmt.Println("\npresence: skipped, redis-server is not installed")
		return
	}
	const heap, peerHeap, cpu, peerCPU, onRedis = "heap", "heap, other node", "CPU µs", "CPU µs, other node", "CPU µs, Redis"
	results := newTable(fmt.Sprintf("%d connections in %d rooms, on one of two nodes: per connection", members, rooms), "%.1f", heap, peerHeap, cpu, peerCPU, onRedis).named("presence")
	for range cfg.passes {
		for _, name := range []string{"one topic", "room", "member"} {
			r := enterRooms(variant(name))
			results.add(name, heap, float64(r.own[1].Heap)/members-float64(r.own[0].Heap)/members)
			results.add(name, peerHeap, float64(r.peer[1].Heap)/members-float64(r.peer[0].Heap)/members)
			results.add(name, cpu, cpuMicros(r.own[0], r.own[1])/members)
			results.add(name, peerCPU, cpuMicros(r.peer[0], r.peer[1])/members)
			results.add(name, onRedis, r.redis*1e6/members)
		}
	}
	results.print()
	results.printDifference("room", "one topic", 1, heap)
	results.printDifference("member", "room", 1, heap, peerHeap, peerCPU)
}

// An entered is the state before and after the connections enter the rooms.
type entered struct {
	own, peer [2]Stats
	redis     float64 // CPU seconds
}

func enterRooms(c contender) (r entered) {
	addr, stop := startRedis()
	defer stop()
	server := goredisClient(addr)
	defer func() { _ = server.Close() }()
	nodes := func(size int) *process {
		return start(c, setup{env: []string{redisAddr + "=" + addr, fmt.Sprintf("%s=%d", roomSize, size)}})
	}
	peer, own := nodes(1), nodes(roomMembers)
	defer peer.stop()
	defer own.stop()
	peers := openConns(rooms, func() *client { return exchange(peer, c) })
	defer closeAll(peers)
	time.Sleep(3 * time.Second) // until the nodes know each other
	r.own[0], r.peer[0] = own.command("collect"), peer.command("collect")
	cpu, quiet := redisCPU(server), redisIdle(server)
	started := time.Now()
	clients := openConns(members, func() *client { return exchange(own, c) })
	defer closeAll(clients)
	time.Sleep(3 * time.Second) // until the other node has received the changes
	ownCPU, peerCPU := own.command("stats").CPU, peer.command("stats").CPU
	r.redis = redisCPU(server) - cpu - quiet*time.Since(started).Seconds()
	r.own[1], r.peer[1] = own.command("collect"), peer.command("collect")
	r.own[1].CPU, r.peer[1].CPU = ownCPU, peerCPU // without the collections
	return r
}

// redisIdle returns the CPU seconds per second that a Redis server uses now.
func redisIdle(client *goredis.Client) float64 {
	const span = 2 * time.Second
	before := redisCPU(client)
	time.Sleep(span)
	return (redisCPU(client) - before) / span.Seconds()
}
