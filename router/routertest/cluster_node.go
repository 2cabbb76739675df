//go:build !js

package routertest

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// A clusterNode is a node of a Cluster, over all its restarts. Its lock is not held while anything waits.
type clusterNode struct {
	cluster *Cluster
	host    string

	mu       sync.Mutex
	draining bool // new clients should choose another node
	app      App  // nil while the node is down
	server   *http.Server
	served   chan struct{} // closed when the server has ended
}

// start starts the application, and a server that passes requests to it.
func (n *clusterNode) start() {
	app := n.cluster.start(n.cluster.Store.Node(n.host))
	server := &http.Server{Handler: app, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	listener := n.cluster.net.Listen(n.host)
	n.cluster.net.SetDown(n.host, false)
	go func() {
		defer close(served)
		_ = server.Serve(listener) // ends with Close
	}()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.app, n.server, n.served, n.draining = app, server, served, false
}

// running returns what runs on the node, or nil.
func (n *clusterNode) running() App {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.app
}

// accepts reports whether new clients should choose the node.
func (n *clusterNode) accepts() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.draining
}

// drain makes new clients choose other nodes, and returns what runs on the node.
func (n *clusterNode) drain() App {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.app == nil || n.draining {
		panic(fmt.Sprintf("routertest: %s is not running, or shutting down", n.host))
	}
	n.draining = true
	return n.app
}

// shutdown ends the node gracefully.
func (n *clusterNode) shutdown() {
	app := n.drain()
	ctx, cancel := context.WithTimeout(context.Background(), n.cluster.opts.ShutdownTimeout)
	defer cancel()
	_ = app.Shutdown(ctx) // the error of a connection that did not close in time
	n.stopServer()
}

// kill ends the node as a crash does: its connections break, and nothing that it does afterwards reaches anyone.
func (n *clusterNode) kill() {
	app := n.drain()
	n.cluster.Store.Crash(n.host)
	n.cluster.net.SetDown(n.host, true)
	n.cluster.net.Cut(n.host)
	n.stopServer()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	go func() { _ = app.Shutdown(ended) }() // gives back its memory and goroutines
}

func (n *clusterNode) stopServer() {
	n.cluster.net.SetDown(n.host, true)
	_ = n.server.Close()
	<-n.served
	n.mu.Lock()
	defer n.mu.Unlock()
	n.app = nil
}

// node returns a node by its number.
func (c *Cluster) node(number int) *clusterNode {
	if number < 1 || number > len(c.nodes) {
		panic(fmt.Sprintf("routertest: there is no node %d; nodes are numbered from 1 to %d", number, len(c.nodes)))
	}
	return c.nodes[number-1]
}

// App returns what runs on a node, or nil if it is down.
func (c *Cluster) App(node int) App { return c.node(node).running() }

// Shutdown shuts a node down gracefully, and returns when it has ended.
func (c *Cluster) Shutdown(node int) { c.node(node).shutdown() }

// Kill ends a node without a shutdown, as a crash does.
func (c *Cluster) Kill(node int) { c.node(node).kill() }

// Start starts a node that was shut down or killed.
func (c *Cluster) Start(node int) {
	n := c.node(node)
	if n.running() != nil {
		panic(fmt.Sprintf("routertest: %s is running", n.host))
	}
	n.start()
}

// Deploy replaces the nodes one after the other, as a rolling deployment does.
func (c *Cluster) Deploy() {
	for _, n := range c.nodes {
		if n.running() != nil {
			n.shutdown()
		}
		n.start()
		c.Wait(time.Second)
	}
}
