//go:build !js

package routertest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/penstock-go/penstock/broker/brokertest"
)

// Cut resets the connections of a host: of the bytes that are on their way, a random part still arrives.
func (c *Cluster) Cut(host string) {
	c.requireHost(host)
	c.fault()
	c.net.Cut(host)
}

// Stall holds back everything between a host and the others for d, as a network without reception does: connections
// stay open until an end gives up. For a node, that does not concern its connection to the store.
func (c *Cluster) Stall(host string, d time.Duration) {
	c.requireHost(host)
	c.fault()
	c.net.Stall(host, d)
}

// requireHost panics if there is no such host, because of a misspelled name for example.
func (c *Cluster) requireHost(host string) {
	hosts := c.hosts()
	for _, n := range c.nodes {
		hosts = append(hosts, n.host)
	}
	if !slices.Contains(hosts, host) {
		panic(fmt.Sprintf("routertest: there is no host %q; clients and nodes are hosts: %q", host, hosts))
	}
}

// Abandon breaks the connections of a host without notice to anyone, as when a phone changes its network. New
// connections work.
func (c *Cluster) Abandon(host string) {
	c.requireHost(host)
	c.fault()
	c.net.Abandon(host)
}

// CutOff interrupts the connection of a node to the store and to the other nodes, until [Cluster.Reconnect] or
// [Cluster.Heal].
func (c *Cluster) CutOff(node int) {
	n := c.node(node)
	c.fault()
	c.Store.CutOff(n.host)
}

// Reconnect ends CutOff.
func (c *Cluster) Reconnect(node int) { c.Store.Heal(c.node(node).host) }

// Pause stops a node for d, as a machine does that is suspended: clients and the store receive nothing from it, and
// it receives nothing. Its own code and its clock run on.
func (c *Cluster) Pause(node int, d time.Duration) {
	n := c.node(node)
	c.fault()
	n.setPaused(time.Now().Add(d))
	c.net.Stall(n.host, d)
	c.Store.Pause(n.host)
	time.AfterFunc(d, n.resume)
}

// FailOver makes a replica of the store its master that lacks the last n publications and values, and returns how many
// were lost. Those that the application has stored with a broker.Durability are never lost.
func (c *Cluster) FailOver(n int) (lost int) {
	c.fault()
	return c.Store.FailOver(n)
}

// Heal ends all faults: those of the store and the network, pauses, and CutOff. It starts the nodes that are down.
// Connections that are broken remain so: clients open new ones.
func (c *Cluster) Heal() {
	c.Store.SetFaults(brokertest.StoreFaults{})
	for _, host := range c.hosts() {
		c.net.Stall(host, 0)
	}
	for _, n := range c.nodes {
		c.net.Stall(n.host, 0)
		n.setPaused(time.Time{})
		n.resume()
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
		time.Sleep(c.random(min(d, 5*time.Second)))
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
		time.Sleep(c.random(20 * time.Second))
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
	return slices.Sorted(maps.Keys(c.clientHosts))
}
