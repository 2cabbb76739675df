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
	draining bool      // new clients should choose another node
	paused   time.Time // when the last Pause ends
	app      App       // nil while the node is down
	server   *http.Server
	served   chan struct{} // closed when the server has ended
}

// start starts the application, and a server that passes requests to it.
func (n *clusterNode) start() {
	app := n.cluster.start(observedBroker{n.cluster.Store.Node(n.host), n.cluster, n.host})
	if app == nil {
		panic("routertest: the function that starts a node has returned nil; it must return a *router.Router, or a handler around one")
	}
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
		panic(fmt.Sprintf("routertest: %s is down, or is shutting down; only a running node can be shut down or killed", n.host))
	}
	n.draining = true
	return n.app
}

// shutdownTimeout bounds a graceful shutdown, as Kubernetes does by default.
const shutdownTimeout = 30 * time.Second

// shutdown ends the node gracefully.
func (n *clusterNode) shutdown() {
	app := n.drain()
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
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

// setPaused sets when the pause of a node ends.
func (n *clusterNode) setPaused(until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paused = until
}

// resume ends a pause, unless a later one lasts longer.
func (n *clusterNode) resume() {
	n.mu.Lock()
	last := !time.Now().Before(n.paused)
	n.mu.Unlock()
	if last {
		n.cluster.Store.Resume(n.host)
	}
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

// Shutdown shuts a node down gracefully, with a context of 30 s, and returns when it has ended. It is not a fault: nothing may be lost.
func (c *Cluster) Shutdown(node int) { c.node(node).shutdown() }

// Kill ends a node without a shutdown, as a crash does.
func (c *Cluster) Kill(node int) {
	n := c.node(node)
	c.fault()
	n.kill()
}

// Start starts a node that was shut down or killed.
func (c *Cluster) Start(node int) {
	n := c.node(node)
	if n.running() != nil {
		panic(fmt.Sprintf("routertest: %s is running; shut it down or kill it before Start", n.host))
	}
	n.start()
}

// Deploy replaces the nodes one after the other, as a rolling deployment does: each one shuts down gracefully and
// starts again. It is not a fault: nothing may be lost.
func (c *Cluster) Deploy() {
	for _, n := range c.nodes {
		if n.running() != nil {
			n.shutdown()
		}
		n.start()
		time.Sleep(time.Second)
	}
}
