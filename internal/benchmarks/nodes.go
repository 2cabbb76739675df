package main

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
)

// nodeCounts are the sizes of the clusters that the nodes suite measures. One of the nodes publishes.
var nodeCounts = []int{2, 10, 100}

// The bursts of publications whose delivery the nodes suite awaits. In the small one Redis writes to
// each node for every publication, in the large one several publications at a time.
const smallBurst, largeBurst = 1, 100

// nodes measures what nodes cost the Redis server and each other: while nothing is published, and
// for publications that all of them receive. The nodes are brokers without connections, all in this
// process.
func nodes(cfg config) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		fmt.Println("\nnodes: skipped, redis-server is not installed")
		return
	}
	var columns []string
	for _, n := range nodeCounts {
		columns = append(columns, nodesColumn(n))
	}
	idle := newTable("nodes that publish nothing: per second, on the Redis server", "%.1f", columns...)
	publication := newTable("a publication of 200 bytes to all nodes", "%.1f", columns...)
	for range cfg.passes {
		for _, n := range nodeCounts {
			measureNodes(n, idle, publication)
		}
	}
	idle.print()
	printFit(idle, "kB from Redis", "bytes", 1000)
	publication.print()
	printSlope(publication, fmt.Sprintf("Redis CPU µs, bursts of %d", smallBurst), "µs")
	printSlope(publication, fmt.Sprintf("Redis CPU µs, bursts of %d", largeBurst), "µs")
	printSlope(publication, "bytes from Redis", "bytes")
}

func nodesColumn(n int) string { return fmt.Sprintf("%d nodes", n) }

func measureNodes(n int, idle, publication *table) {
	addr, stop := startRedis()
	defer stop()
	client := goredis.NewClient(&goredis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	memory, base := redisInfo(client, "memory", "used_memory"), redisIdle(client)
	cl := newCluster(addr, n-1)
	defer cl.close()
	time.Sleep(3 * time.Second) // until all nodes know each other

	const span = 5 * time.Second
	before := snapshot(client)
	time.Sleep(span)
	quiet := snapshot(client).since(before)
	column, seconds := nodesColumn(n), span.Seconds()
	idle.add("Redis CPU ms", column, (quiet.redis/seconds-base)*1e3)
	idle.add("kB to Redis", column, quiet.in/1e3/seconds)
	idle.add("kB from Redis", column, quiet.out/1e3/seconds)
	idle.add("node CPU ms", column, quiet.self*1e3/seconds/float64(n))
	idle.add("kB memory per node", column, (redisInfo(client, "memory", "used_memory")-memory)/1e3/float64(n))

	for _, burst := range []int{smallBurst, largeBurst} {
		before, started := snapshot(client), time.Now()
		published := 0
		for ; time.Since(started) < span; published += burst {
			cl.publish(burst)
		}
		load := snapshot(client).since(before)
		elapsed, count := time.Since(started).Seconds(), float64(published)
		suffix := fmt.Sprintf(", bursts of %d", burst)
		publication.add("Redis CPU µs"+suffix, column, (load.redis-quiet.redis*elapsed/seconds)*1e6/count)
		publication.add("CPU µs of a receiving node"+suffix, column, (load.self-quiet.self*elapsed/seconds)*1e6/count/float64(n-1))
		if burst == largeBurst {
			publication.add("bytes to Redis", column, (load.in-quiet.in*elapsed/seconds)/count)
			publication.add("bytes from Redis", column, (load.out-quiet.out*elapsed/seconds)/count)
		}
	}
}

// printFit prints the coefficients of the number of nodes and of its square, from the two largest
// clusters.
func printFit(t *table, row, unit string, factor float64) {
	a, b := float64(nodeCounts[len(nodeCounts)-2]), float64(nodeCounts[len(nodeCounts)-1])
	small, large := median(t.get(row, nodesColumn(int(a)))), median(t.get(row, nodesColumn(int(b))))
	square := (large/b - small/a) / (b - a)
	printLine("%s: %.1f %s per node, and %.2f %s per node and other node", row, (small/a-square*a)*factor, unit, square*factor, unit)
}

// printSlope prints the cost of a publication, and of each node that receives it.
func printSlope(t *table, row, unit string) {
	first, last := nodeCounts[0], nodeCounts[len(nodeCounts)-1]
	small, large := median(t.get(row, nodesColumn(first))), median(t.get(row, nodesColumn(last)))
	slope := (large - small) / float64(last-first)
	printLine("%s: %.1f %s, and %.2f %s per receiving node", row, small-slope*float64(first-1), unit, slope, unit)
}

// A cluster is a number of nodes that subscribe to one topic, and one more that publishes there.
// Their heartbeats are spread over a second.
type cluster struct {
	sessions  []broker.Node
	clients   []*goredis.Client
	publisher broker.Node
	awaited   atomic.Int64 // deliveries
	done      chan struct{}
}

func newCluster(addr string, receivers int) *cluster {
	cl := &cluster{done: make(chan struct{}, 1)}
	var subscribed sync.WaitGroup
	subscribed.Add(receivers)
	connect := func(h broker.Callbacks) broker.Node {
		client := goredis.NewClient(&goredis.Options{Addr: addr, PoolSize: 4})
		cl.clients = append(cl.clients, client)
		s := redis.NewBroker(client).Connect(h)
		cl.sessions = append(cl.sessions, s)
		return s
	}
	for range receivers {
		time.Sleep(time.Second / time.Duration(receivers))
		connect(broker.Callbacks{
			Receive:         cl.received,
			Subscribed:      func(string) { subscribed.Done() },
			MessagesLost:    func(topic string, n int) { check(fmt.Errorf("%d publications on %s were lost", n, topic)) },
			PresenceChanged: func(string, broker.Member, bool) {},
			NodeLeft:        func(string) {},
		}).Subscribe("all")
	}
	subscribed.Wait()
	// A publication of a subscriber does not come back to it, so the publisher is a node of its own.
	cl.publisher = connect(broker.Callbacks{
		Receive:         func(string, string, []byte) {},
		Subscribed:      func(string) {},
		MessagesLost:    func(string, int) {},
		PresenceChanged: func(string, broker.Member, bool) {},
		NodeLeft:        func(string) {},
	})
	return cl
}

func (cl *cluster) received(string, string, []byte) {
	if cl.awaited.Add(-1) == 0 {
		cl.done <- struct{}{}
	}
}

// publish publishes a burst and waits until all nodes have received it.
func (cl *cluster) publish(burst int) {
	cl.awaited.Store(int64(burst * (len(cl.sessions) - 1)))
	for range burst {
		check(cl.publisher.Publish("all", append([]byte(nil), published...)))
	}
	<-cl.done
}

func (cl *cluster) close() {
	var wg sync.WaitGroup
	for i, s := range cl.sessions {
		wg.Go(func() {
			check(s.Close(context.Background()))
			check(cl.clients[i].Close())
		})
	}
	wg.Wait()
}

// A usage is what the Redis server and this process have used: CPU seconds and bytes.
type usage struct{ redis, self, in, out float64 }

func snapshot(client *goredis.Client) usage {
	return usage{
		redis: redisCPU(client),
		self:  ownCPU(),
		in:    redisInfo(client, "stats", "total_net_input_bytes"),
		out:   redisInfo(client, "stats", "total_net_output_bytes"),
	}
}

func (u usage) since(before usage) usage {
	return usage{u.redis - before.redis, u.self - before.self, u.in - before.in, u.out - before.out}
}
