package main

import (
	"fmt"
	"os/exec"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// The largest cluster of processes, the subscribers of each of them, and the publications of a
// measurement.
const (
	clusterNodes        = 4
	clusterSubscribers  = 10
	clusterPublications = 500
)

// clusterPeers are the servers of a cluster, by contender.
var clusterPeers = []string{"penstock", "centrifuge"}

// clusterLoads are how the publications of a measurement follow each other.
var clusterLoads = []struct{ name, command string }{
	{"alone", fmt.Sprint("publish -", clusterPublications)}, // with pauses; see publishPaced
	{"in bursts", fmt.Sprint("publish ", clusterPublications)},
}

// clusters measures processes that share a Redis server: what a publication costs, and how clients
// recover after the processes have lost the Redis server for a while.
func clusters(cfg config) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		fmt.Println("\ncluster: skipped, redis-server is not installed")
		return
	}
	peers := slices.DeleteFunc(slices.Clone(clusterPeers), func(name string) bool {
		return !slices.ContainsFunc(cfg.contenders, func(c contender) bool { return c.name == name })
	})
	measurePublications(cfg, peers)
	blips(cfg, peers)
}

// measurePublications measures the CPU time per publication that all nodes of a cluster receive.
func measurePublications(cfg config, peers []string) {
	const publisher, receiver, onRedis = "publishing node", "receiving node", "Redis"
	for _, load := range clusterLoads {
		var columns []string
		for n := 1; n <= clusterNodes; n++ {
			columns = append(columns, nodesColumn(n))
		}
		tables := map[string]*table{}
		for _, part := range []string{publisher, receiver, onRedis} {
			title := fmt.Sprintf("200 bytes published %s to %d subscribers on each node: CPU of the %s per publication, µs", load.name, clusterSubscribers, part)
			tables[part] = newTable(title, "%.1f", columns...).named(fmt.Sprintf("cluster, %s, %s", part, load.name))
		}
		for range cfg.passes {
			for n := 1; n <= clusterNodes; n++ {
				for _, name := range peers {
					r := publishToCluster(variant("cluster "+name), n, load.command)
					tables[publisher].add(name, nodesColumn(n), r.publisher)
					tables[onRedis].add(name, nodesColumn(n), r.redis)
					if n > 1 {
						tables[receiver].add(name, nodesColumn(n), r.receiver)
					}
				}
			}
		}
		for _, part := range []string{publisher, receiver, onRedis} {
			tables[part].print()
			tables[part].printRatios()
		}
	}
}

// A publicationCost is the CPU time of a publication, in µs.
type publicationCost struct{ publisher, receiver, redis float64 }

// publishToCluster measures a cluster of n processes, less what it uses while nothing is published.
func publishToCluster(c contender, n int, command string) publicationCost {
	addr, stop := startRedis()
	defer stop()
	redis := goredisClient(addr)
	defer func() { _ = redis.Close() }()
	var nodes []*subscribers
	for range n {
		p := start(c, setup{env: []string{redisAddr + "=" + addr}})
		defer p.stop()
		s := subscribe(p, c, clusterSubscribers)
		defer s.close()
		nodes = append(nodes, s)
	}
	time.Sleep(3 * time.Second) // until the nodes know each other
	publishTo(nodes, command)   // so that the nodes have allocated what they keep
	const span = 2 * time.Second
	begin := cpuOfCluster(nodes, redis)
	time.Sleep(span)
	idle := begin.since(cpuOfCluster(nodes, redis), span.Seconds())
	const rounds = 4
	begin = cpuOfCluster(nodes, redis)
	started := time.Now()
	for range rounds {
		publishTo(nodes, command)
	}
	elapsed := time.Since(started).Seconds()
	used := begin.since(cpuOfCluster(nodes, redis), 1)
	cost := func(used, idle float64) float64 { return (used - idle*elapsed) * 1e6 / (rounds * clusterPublications) }
	r := publicationCost{publisher: cost(used.nodes[0], idle.nodes[0]), redis: cost(used.redis, idle.redis)}
	for i := range nodes[1:] {
		r.receiver += cost(used.nodes[i+1], idle.nodes[i+1]) / float64(n-1)
	}
	return r
}

// publishTo publishes on the first node and waits until all subscribers have received everything.
func publishTo(nodes []*subscribers, command string) {
	for _, s := range nodes {
		s.received.Add(len(s.next))
		for _, next := range s.next {
			next <- clusterPublications
		}
	}
	nodes[0].p.command(command)
	for _, s := range nodes {
		s.received.Wait()
	}
}

// A clusterCPU is the CPU seconds of each node and of the Redis server.
type clusterCPU struct {
	nodes []float64
	redis float64
}

func cpuOfCluster(nodes []*subscribers, redis *goredis.Client) clusterCPU {
	used := clusterCPU{redis: redisCPU(redis)}
	for _, s := range nodes {
		used.nodes = append(used.nodes, s.p.command("stats").CPU.Seconds())
	}
	return used
}

// since returns what has been used until after, divided by a number.
func (u clusterCPU) since(after clusterCPU, divisor float64) clusterCPU {
	used := clusterCPU{redis: (after.redis - u.redis) / divisor}
	for i := range u.nodes {
		used.nodes = append(used.nodes, (after.nodes[i]-u.nodes[i])/divisor)
	}
	return used
}
