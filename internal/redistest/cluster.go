package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A Cluster is three masters without replicas which share all slots.
type Cluster struct {
	Nodes []*Server // in the order of their slots: 0 to 5460, to 10922, to 16383
}

const (
	slots   = 16384
	masters = 3
)

// StartCluster starts a cluster. Every node serves all of it when StartCluster
// returns. The nodes are killed when the test ends.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	need(t)
	c := &Cluster{}
	var buses []int
	for range masters {
		node, bus := startNode(t)
		c.Nodes, buses = append(c.Nodes, node), append(buses, bus)
	}
	for i, node := range c.Nodes {
		node.join(t, i, c.Nodes[0].process.port, buses[0])
	}
	for _, node := range c.Nodes {
		if err := poll(func() (bool, error) { return node.inCluster(t) }); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// startNode returns a node that knows no other, and the port of its cluster bus.
func startNode(t testing.TB) (node *Server, bus int) {
	t.Helper()
	dir := t.TempDir()
	node = launch(t, func(port int) []string {
		bus = randomPort()
		return append(nodeArgs(port, dir),
			"--cluster-enabled", "yes",
			"--cluster-port", strconv.Itoa(bus),
			// A new master may wait as long before it serves.
			"--cluster-node-timeout", "2000")
	})
	return node, bus
}

// join gives the node of index i its share of the slots, and makes it known to
// the node at port.
func (s *Server) join(t testing.TB, i, port, bus int) {
	t.Helper()
	ctx, admin := t.Context(), s.process.admin
	pipe := admin.Pipeline()
	// Distinct epochs from the start spare the nodes from settling them.
	pipe.Do(ctx, "cluster", "set-config-epoch", i+1)
	// Bounds rounded to the nearest, as redis-cli has them.
	bound := func(i int) int { return (2*i*slots + masters) / (2 * masters) }
	pipe.ClusterAddSlotsRange(ctx, bound(i), bound(i+1)-1)
	if i > 0 {
		pipe.Do(ctx, "cluster", "meet", host, port, bus)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatalf("redistest: cluster node %s: %v", s.Addr, err)
	}
}

// inCluster is a condition for poll: the node sees the whole cluster.
func (s *Server) inCluster(t testing.TB) (done bool, err error) {
	info, err := s.process.admin.ClusterInfo(t.Context()).Result()
	if err != nil {
		return false, fmt.Errorf("redistest: cluster node %s: %w", s.Addr, err)
	}
	for _, want := range []string{"cluster_state:ok", fmt.Sprint("cluster_size:", masters)} {
		if !strings.Contains(info, want+"\r\n") {
			return false, fmt.Errorf("redistest: cluster node %s does not say %s but:\n%s", s.Addr, want, info)
		}
	}
	return true, nil
}

// Client returns a client of the cluster with the library's defaults. It is
// closed when t ends.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	opts := &redis.ClusterOptions{}
	for _, node := range c.Nodes {
		opts.Addrs = append(opts.Addrs, node.Addr)
	}
	return closed(t, redis.NewClusterClient(opts))
}
