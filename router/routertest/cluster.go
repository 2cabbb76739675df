//go:build !js

package routertest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/internal/simnet"
)

// An App is what runs on a node: a *router.Router, or the handler of an application around one.
type App interface {
	http.Handler
	Shutdown(ctx context.Context) error
}

// ClusterOptions configure [NewCluster]. The zero value is a working configuration.
type ClusterOptions struct {
	Nodes int    // 3 if 0
	Seed  uint64 // of delays, of the choice of nodes, and of [Cluster.RandomFaults]
	Path  string // of the URL of clients; "/ws" if ""

	// ShutdownTimeout bounds a graceful shutdown of a node, as the context of App.Shutdown: 10 s if 0.
	ShutdownTimeout time.Duration

	// MaxDelay bounds the random time that bytes are on their way between hosts: 20 ms if 0.
	MaxDelay time.Duration
}

// A Cluster is an application on several nodes with one store, and its clients, in a network in memory. It
// exists in a testing/synctest bubble, so a test of minutes takes milliseconds. Clients connect to a random
// node that accepts connections, as behind a load balancer.
//
// Nodes are numbered from 1. Clients and nodes are hosts of the network; the host of node 1 is "node1".
// Methods that take the name of a host act on a client or a node. A Cluster is safe for concurrent use, but a node must
// not be started, shut down or killed while it starts or shuts down; methods panic if they are called wrongly.
//
// When the test ends, the clients are closed and the nodes are shut down, and the test fails if
// connections, or calls of the store, are left. The bubble fails it if goroutines are left.
type Cluster struct {
	Store *brokertest.FaultyStore // carries what the nodes share; its methods are faults of the store

	t     testing.TB
	opts  ClusterOptions
	start func(broker.HistoryBroker) App
	net   *simnet.Network
	nodes []*clusterNode

	mu         sync.Mutex
	rng        *rand.Rand
	clients    []*client.Client
	transports map[string]*http.Transport // of the hosts of clients
}

// NewCluster starts the nodes of a cluster. It calls start for each node, and again for each restart, with the
// store as that node reaches it, for router.Options.Broker. It must be called in a testing/synctest bubble. If
// opts is nil, the defaults are used.
func NewCluster(t testing.TB, start func(broker.HistoryBroker) App, opts *ClusterOptions) *Cluster {
	t.Helper()
	c := &Cluster{t: t, start: start, transports: map[string]*http.Transport{}}
	if opts != nil {
		c.opts = *opts
	}
	c.opts.setDefaults()
	c.rng = rand.New(rand.NewPCG(c.opts.Seed, 1)) //nolint:gosec // not secret
	c.Store = brokertest.Faulty(c.opts.Seed)
	c.net = simnet.New(c.opts.Seed, simnet.Links{MaxDelay: c.opts.MaxDelay, Window: windowBytes})
	for i := range c.opts.Nodes {
		n := &clusterNode{cluster: c, host: fmt.Sprintf("node%d", i+1)}
		c.nodes = append(c.nodes, n)
		n.start()
	}
	t.Cleanup(c.close)
	return c
}

// windowBytes is what a connection holds of a direction: less than kernels do, so that slow readers are
// noticed after fewer bytes.
const windowBytes = 32 << 10

func (o *ClusterOptions) setDefaults() {
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Path == "" {
		o.Path = "/ws"
	}
	if o.ShutdownTimeout == 0 {
		o.ShutdownTimeout = 10 * time.Second
	}
	if o.MaxDelay == 0 {
		o.MaxDelay = 20 * time.Millisecond
	}
}

// URL is the address of the cluster, with the path of ClusterOptions.
func (c *Cluster) URL() string { return "ws://" + clusterHost + c.opts.Path }

const clusterHost = "cluster.test"

// Client returns a client on a host of its own. Its HTTPClient, unless opts has one, is that of [Cluster.Transport], and
// its log goes to the test. It is closed when the test ends. Several clients may share a host.
func (c *Cluster) Client(host string, opts *client.Options) *client.Client {
	c.t.Helper()
	o := client.Options{}
	if opts != nil {
		o = *opts
	}
	if o.HTTPClient == nil {
		o.HTTPClient = &http.Client{Transport: c.Transport(host)}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(c.t.Output(), nil)).With("client", host)
	}
	cl := client.New(c.URL(), &o)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = append(c.clients, cl)
	return cl
}

// Transport sends HTTP requests to the cluster from a host: for requests of a test's own, or as the Base of package
// client/fallback.
func (c *Cluster) Transport(host string) http.RoundTripper {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transports[host] == nil {
		c.transports[host] = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.Dial(ctx, host) }}
	}
	return c.transports[host]
}

// Dial connects a host to a random node that accepts connections, for clients that write bytes of their own.
// It is safe for concurrent use.
func (c *Cluster) Dial(ctx context.Context, host string) (net.Conn, error) {
	c.mu.Lock()
	order := c.rng.Perm(len(c.nodes))
	c.mu.Unlock()
	var conn net.Conn
	err := error(nil)
	for _, accepting := range []bool{true, false} { // without a healthy node, a load balancer tries the others
		for _, i := range order {
			if c.nodes[i].accepts() != accepting {
				continue
			}
			if conn, err = c.net.Dial(ctx, host, c.nodes[i].host); err == nil || ctx.Err() != nil {
				return conn, err
			}
		}
	}
	return nil, err
}

// Wait lets virtual time pass.
func (c *Cluster) Wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// close ends the test: it must leave nothing behind.
func (c *Cluster) close() {
	c.t.Helper()
	c.Heal()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, cl := range c.clients {
		if err := cl.Close(ctx); err != nil {
			c.t.Errorf("routertest: a client did not close: %v", err)
		}
	}
	for _, t := range c.transports {
		t.CloseIdleConnections()
	}
	for _, n := range c.nodes {
		if n.running() != nil {
			n.shutdown()
		}
	}
	c.Wait(time.Minute)
	for _, problem := range c.leaks() {
		c.t.Errorf("routertest: %s", problem)
	}
}

// leaks returns what is left behind after all clients and nodes have ended.
func (c *Cluster) leaks() (problems []string) {
	if n := c.net.Conns(""); n > 0 {
		problems = append(problems, fmt.Sprintf("%d connections are still open", n))
	}
	return problems
}
