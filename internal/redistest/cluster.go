package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/freeport"
)

// A Cluster is a Redis Cluster of three masters without replicas.
type Cluster struct {
	Nodes []*Server // in the order of their slots: 0 to 5460, to 10922, to 16383
}

const (
	slots   = 16384
	masters = 3
)

// StartCluster starts a cluster. When it returns, every node knows that the cluster is complete.
// The nodes are killed when the test ends.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	requireRedis(t)
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
	for _, node := range c.Nodes { // a busy machine must not make them fail
		if err := node.process.admin.ConfigSet(t.Context(), "cluster-node-timeout", "2000").Err(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// startNode starts a node that knows no other node, and returns it with the port of its cluster
// bus.
func startNode(t testing.TB) (node *Server, bus int) {
	t.Helper()
	dir := t.TempDir()
	node = launch(t, nil, func(port int) []string {
		bus = freeport.Pick()
		return append(nodeArgs(port, dir),
			"--cluster-enabled", "yes",
			"--cluster-port", strconv.Itoa(bus),
			// A new master waits for this time before it serves requests. StartCluster sets
			// another one later.
			"--cluster-node-timeout", "500")
	})
	return node, bus
}

// join assigns its share of the slots to the node with index i, and introduces the node to the
// node at port.
func (s *Server) join(t testing.TB, i, port, bus int) {
	t.Helper()
	ctx, admin := t.Context(), s.process.admin
	pipe := admin.Pipeline()
	// With distinct epochs, the nodes need not resolve conflicts between them.
	pipe.Do(ctx, "cluster", "set-config-epoch", i+1)
	// redis-cli also rounds the bounds to the nearest slot.
	bound := func(i int) int { return (2*i*slots + masters) / (2 * masters) }
	pipe.ClusterAddSlotsRange(ctx, bound(i), bound(i+1)-1)
	if i > 0 {
		pipe.Do(ctx, "cluster", "meet", host, port, bus)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatalf("redistest: cluster node %s: %v", s.Addr, err)
	}
}

// inCluster is a condition for poll. It holds when the node sees the whole cluster.
func (s *Server) inCluster(t testing.TB) (done bool, err error) {
	info, err := s.process.admin.ClusterInfo(t.Context()).Result()
	if err != nil {
		return false, fmt.Errorf("redistest: cluster node %s: %w", s.Addr, err)
	}
	for _, want := range []string{"cluster_state:ok", fmt.Sprint("cluster_size:", masters)} {
		if !strings.Contains(info, want+"\r\n") {
			return false, fmt.Errorf("redistest: cluster node %s must report %s; it reports:\n%s", s.Addr, want, info)
		}
	}
	return true, nil
}

// Client returns a client of the cluster with the default options. It is closed when t ends.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	opts := &redis.ClusterOptions{}
	for _, node := range c.Nodes {
		opts.Addrs = append(opts.Addrs, node.Addr)
	}
	return closeAfter(t, redis.NewClusterClient(opts))
}
