//go:build !js

package routertest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
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

	// MayLose reports whether clients may miss more publications of a topic than its history has. Losses of
	// these topics do not fail the test. If nil, there are none.
	MayLose func(topic string) bool
}

// A Cluster is an application on several nodes with one store, and its clients, in a network in memory. It
// exists in a testing/synctest bubble, so a test of minutes takes milliseconds. Clients connect to a random
// node that accepts connections, as behind a load balancer.
//
// Nodes are numbered from 1. Clients and nodes are hosts of the network; the host of node 1 is "node1".
// Methods that take the name of a host act on a client or a node. A Cluster is safe for concurrent use, but a node
// must not be started, shut down or killed while it starts or shuts down. Methods panic if they are called wrongly.
//
// The cluster checks what needs no knowledge of the application. It observes every connection of [Cluster.Client] and
// [Cluster.Transport], over WebSocket or plain HTTP, unless it is compressed, and fails the test if
//
//   - a call has two answers, or has none at the end of the test although its deadline has passed,
//   - the publications of a topic with positions are repeated, not in order, or have a gap that no notice explains,
//   - a client or a node is notified of lost publications, and the test has injected no fault, or
//   - connections, nodes of the store or calls of the store are left when all clients and nodes have ended.
//
// The bubble itself fails the test if goroutines are left. Every failure has the seed, the virtual time since
// NewCluster, and the host.
//
// When the test ends, the cluster is healed, the clients are closed, and the nodes are shut down.
type Cluster struct {
	Store *brokertest.FaultyStore // carries what the nodes share; its methods are faults of the store

	t     testing.TB
	opts  ClusterOptions
	start func(broker.HistoryBroker) App
	net   *simnet.Network
	nodes []*clusterNode
	began time.Time

	mu          sync.Mutex
	rng         *rand.Rand
	clients     []*client.Client
	clientHosts map[string]struct{}
	transports  map[string]*http.Transport // of the hosts of clients
	observed    map[*observedBody]struct{} // open connections
	faulty      bool                       // a fault was injected that may lose something
}

// NewCluster starts the nodes of a cluster. It calls start for each node, and again for each restart, with the
// store as that node reaches it, for router.Options.Broker. It must be called in a testing/synctest bubble. If
// opts is nil, the defaults are used.
//
// To find faults that no test was written for, call it with many seeds, each in a bubble of its own, and
// [Cluster.RandomFaults]. The schedule of goroutines and the jitter of clients are not part of the seed.
func NewCluster(t testing.TB, start func(broker.HistoryBroker) App, opts *ClusterOptions) *Cluster {
	t.Helper()
	if !inBubble() {
		t.Fatal("routertest: NewCluster must be called in a testing/synctest bubble, with its t: " + bubbleExample)
	}
	c := &Cluster{t: t, start: start, began: time.Now(), clientHosts: map[string]struct{}{}, transports: map[string]*http.Transport{}, observed: map[*observedBody]struct{}{}}
	if opts != nil {
		c.opts = *opts
	}
	c.opts.setDefaults()
	c.rng = rand.New(rand.NewPCG(c.opts.Seed, 1)) //nolint:gosec // not secret
	c.Store = brokertest.Faulty(c.opts.Seed)
	c.net = simnet.New(c.opts.Seed, simnet.Links{MaxDelay: maxDelay, Window: windowBytes})
	for i := range c.opts.Nodes {
		n := &clusterNode{cluster: c, host: fmt.Sprintf("node%d", i+1)}
		c.nodes = append(c.nodes, n)
		n.start()
	}
	t.Cleanup(c.close)
	return c
}

const bubbleExample = "synctest.Test(t, func(t *testing.T) { cluster := routertest.NewCluster(t, start, nil); … })"

// inBubble reports whether the caller runs in a bubble. Outside, synctest.Wait panics, as it does inside if another
// goroutine waits.
func inBubble() (ok bool) {
	defer func() { ok = !strings.Contains(fmt.Sprint(recover()), "not in a bubble") }()
	synctest.Wait()
	return true
}

const (
	// maxDelay bounds the random time that bytes are on their way between hosts.
	maxDelay = 20 * time.Millisecond

	// windowBytes is what a connection holds of a direction: less than kernels do, so that slow readers are
	// noticed after fewer bytes.
	windowBytes = 32 << 10
)

func (o *ClusterOptions) setDefaults() {
	if o.Nodes < 0 {
		panic(fmt.Sprintf("routertest: ClusterOptions.Nodes is %d; it must be at least 1, or 0 for the default", o.Nodes))
	}
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Path == "" {
		o.Path = "/ws"
	}
}

// URL is the address of the cluster, with the path of ClusterOptions.
func (c *Cluster) URL() string { return "ws://" + clusterHost + c.opts.Path }

const clusterHost = "cluster.test"

// Client returns a client on a host, which is any name. Several clients may share a host. The client connects with
// [Cluster.Transport], unless opts has another HTTPClient, and logs to the test, unless opts has a Logger. It is closed
// when the test ends.
func (c *Cluster) Client(host string, opts *client.Options) *client.Client {
	c.t.Helper()
	o := client.Options{}
	if opts != nil {
		o = *opts
	}
	httpClient := http.Client{Transport: c.Transport(host)}
	if o.HTTPClient != nil {
		httpClient = *o.HTTPClient
	}
	if httpClient.Transport == nil {
		c.t.Fatalf("routertest: the HTTPClient of the client on %s has no Transport, so it would use the real network; use Cluster.Transport(%q)", host, host)
	}
	httpClient.Transport = &observedTransport{RoundTripper: httpClient.Transport, cluster: c, host: host}
	o.HTTPClient = &httpClient
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(c.t.Output(), nil)).With("client", host)
	}
	cl := client.New(c.URL(), &o)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = append(c.clients, cl)
	return cl
}

// Transport sends HTTP requests to the cluster from a host, whatever host their URL has: for requests of a test's own,
// as the Base of package client/fallback, or for other WebSocket clients.
func (c *Cluster) Transport(host string) http.RoundTripper {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addHostLocked(host)
	if c.transports[host] == nil {
		c.transports[host] = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.Dial(ctx, host) }}
	}
	return &observedTransport{RoundTripper: c.transports[host], cluster: c, host: host}
}

// addHostLocked notes the host of a client.
func (c *Cluster) addHostLocked(host string) {
	if host == "" || slices.ContainsFunc(c.nodes, func(n *clusterNode) bool { return n.host == host }) {
		panic(fmt.Sprintf("routertest: the host of a client is %q; it needs a name of its own, which is not that of a node", host))
	}
	c.clientHosts[host] = struct{}{}
}

// Dial connects a host to a random node that accepts connections, for clients that write bytes of their own. The
// connection is not observed. The caller closes it.
func (c *Cluster) Dial(ctx context.Context, host string) (net.Conn, error) {
	c.mu.Lock()
	c.addHostLocked(host)
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

// Wait lets virtual time pass, and returns when all other goroutines of the bubble wait for something. One goroutine may
// call it at a time; others call time.Sleep.
func (c *Cluster) Wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// close ends the test: it must leave nothing behind.
func (c *Cluster) close() {
	c.t.Helper()
	if !inBubble() {
		c.t.Error("routertest: the t of NewCluster is not that of the bubble: " + bubbleExample)
		return
	}
	c.Heal()
	c.Wait(time.Minute) // longer than callers wait by default, and than clients wait before they connect again
	for _, text := range c.outcomes() {
		c.problem("%s", text)
	}
	c.closeClients()
	for _, n := range c.nodes {
		if n.running() != nil {
			n.shutdown()
		}
	}
	c.Wait(time.Minute)
	for _, text := range c.leaks() {
		c.problem("%s", text)
	}
	if c.t.Failed() {
		c.t.Logf("routertest: the seed of the cluster is %d", c.opts.Seed)
	}
}

func (c *Cluster) closeClients() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, cl := range c.clients {
		if err := cl.Close(ctx); err != nil {
			c.problem("a client did not close within a minute: %v", err)
		}
	}
	for _, t := range c.transports {
		t.CloseIdleConnections()
	}
}
