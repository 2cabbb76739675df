//go:build !js

package routertest

import (
	"maps"
	"slices"
	"time"

	"github.com/penstock-go/penstock/broker/brokertest"
)

// Cut resets the connections of a host: of the bytes that are on their way, a random part still arrives.
func (c *Cluster) Cut(host string) { c.net.Cut(host) }

// Stall holds back everything between a host and the others for d.
func (c *Cluster) Stall(host string, d time.Duration) { c.net.Stall(host, d) }

// Abandon breaks the connections of a host without notice to anyone, as when a phone changes its network. New
// connections work.
func (c *Cluster) Abandon(host string) { c.net.Abandon(host) }

// CutOff interrupts the connection of a node to the store, until [Cluster.Reconnect] or [Cluster.Heal].
func (c *Cluster) CutOff(node int) {
	c.Store.CutOff(c.node(node).host)
}

// Reconnect ends CutOff.
func (c *Cluster) Reconnect(node int) {
	c.Store.Heal(c.node(node).host)
}

// Pause stops a node for d, as a machine does that is suspended: clients and the store receive nothing from it, and
// it receives nothing.
func (c *Cluster) Pause(node int, d time.Duration) {
	n := c.node(node)
	c.net.Stall(n.host, d)
	c.Store.Pause(n.host)
	time.AfterFunc(d, func() { c.Store.Resume(n.host) })
}

// FailOver makes a replica of the store its master that lacks the last n publications and values.
func (c *Cluster) FailOver(lost int) { c.Store.FailOver(lost) }

// Heal ends the faults of the store, and starts the nodes that do not run. What is stalled or paused ends by itself.
func (c *Cluster) Heal() {
	c.Store.SetFaults(brokertest.StoreFaults{})
	for _, n := range c.nodes {
		c.Store.Heal(n.host)
		if n.running() == nil {
			n.start()
		}
	}
}

// RandomFaults causes faults for d, one after the other: connections are cut, stalled and abandoned, nodes are
// killed, shut down, cut off and paused, and the store fails over without losing anything. The seed of the
// cluster selects them. At the end, it heals the cluster.
func (c *Cluster) RandomFaults(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		c.Wait(c.random(min(d, 5*time.Second)))
		c.randomFault()
	}
	c.Heal()
}

func (c *Cluster) randomFault() {
	node := 1 + c.intn(len(c.nodes))
	n := c.nodes[node-1]
	host := n.host
	if hosts := c.hosts(); len(hosts) > 0 && c.intn(2) == 0 {
		host = hosts[c.intn(len(hosts))]
	}
	switch fault := c.intn(8); {
	case n.running() == nil:
		n.start()
	case fault == 0:
		c.Kill(node)
	case fault == 1:
		c.Shutdown(node)
	case fault == 2:
		c.CutOff(node)
		c.Wait(c.random(20 * time.Second))
		c.Reconnect(node)
	case fault == 3:
		c.Pause(node, c.random(20*time.Second))
	case fault == 4:
		c.FailOver(0)
	case fault == 5:
		c.Cut(host)
	case fault == 6:
		c.Abandon(host)
	default:
		c.Stall(host, c.random(20*time.Second))
	}
}

func (c *Cluster) intn(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

func (c *Cluster) random(longest time.Duration) time.Duration {
	return time.Duration(c.intn(int(longest)))
}

// hosts returns the hosts of clients.
func (c *Cluster) hosts() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.transports))
}
