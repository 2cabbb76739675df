package brokertest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// A faultyCluster connects nodes to a store, each with a name of its own.
type faultyCluster struct {
	store *brokertest.FaultyStore
	names map[string]string // of nodes, by the names that they have as publishers
}

func newFaultyCluster(seed uint64) *faultyCluster {
	return &faultyCluster{store: brokertest.Faulty(seed), names: map[string]string{}}
}

func (c *faultyCluster) connect(h broker.Callbacks, hh broker.HistoryCallbacks) broker.HistoryNode {
	name := fmt.Sprint("node ", len(c.names)+1)
	n := c.store.Node(name).ConnectHistory(h, hh)
	c.names[n.Name()] = name
	return n
}

// nodeFaults returns what disturbs one node.
func (c *faultyCluster) nodeFaults() []brokertest.Fault {
	return c.faultsOf(map[string]func(name string) (end func()){
		"cut off": func(name string) func() { c.store.CutOff(name); return func() { c.store.Heal(name) } },
		"pause":   func(name string) func() { c.store.Pause(name); return func() { c.store.Resume(name) } },
	})
}

// faults returns what disturbs a node or the cluster and loses no publication that was stored.
func (c *faultyCluster) faults() []brokertest.Fault {
	byChance := func(f brokertest.StoreFaults) func(string) func() {
		return func(string) func() {
			c.store.SetFaults(f)
			return func() { c.store.SetFaults(brokertest.StoreFaults{}) }
		}
	}
	return append(c.nodeFaults(), c.faultsOf(map[string]func(name string) (end func()){
		"restart":     func(string) func() { c.store.Restart(); return func() { c.store.Restart() } },
		"failover":    func(string) func() { c.store.FailOver(0); return func() { c.store.FailOver(0) } },
		"lost":        byChance(brokertest.StoreFaults{LostAnswers: 0.3, LostDeliveries: 0.3}),
		"lost all":    byChance(brokertest.StoreFaults{LostAnswers: 1, LostDeliveries: 1}),
		"packets":     byChance(brokertest.StoreFaults{LostPackets: 0.2, RepeatedPackets: 0.2}),
		"slow":        byChance(brokertest.StoreFaults{Slow: 10 * time.Second}),
		"slow packet": byChance(brokertest.StoreFaults{Slow: 2 * time.Second, RepeatedPackets: 0.2}),
		"full":        byChance(brokertest.StoreFaults{Full: true}),
	})...)
}

// faultsOf returns faults of two durations.
func (c *faultyCluster) faultsOf(begin map[string]func(name string) (end func())) (all []brokertest.Fault) {
	for name, begin := range begin {
		for _, d := range []time.Duration{time.Second, 20 * time.Second} {
			all = append(all, brokertest.Fault{Name: name + " for " + d.String(), Duration: d, Begin: func(n broker.Node) func() {
				end := begin(c.names[n.Name()])
				return func() {
					end()
					time.Sleep(5 * time.Second) // until connections work again, and what was slow has arrived
				}
			}})
		}
	}
	return all
}

// seeds are those of a test of the contract. Faults take more than ten times as long.
func seeds(faults bool) uint64 {
	if faults {
		return testscale.Tiers[uint64](1, 2, 50)
	}
	return testscale.Tiers[uint64](4, 20, 1000)
}

func TestFaulty_KeepsContract(t *testing.T) {
	keepsContract(t, false)
}

func TestFaulty_KeepsContractInFaults(t *testing.T) {
	keepsContract(t, true)
}

func keepsContract(t *testing.T, faults bool) {
	for _, c := range brokertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			for seed := range seeds(faults) {
				synctest.Test(t, func(t *testing.T) {
					cluster := newFaultyCluster(seed)
					check := brokertest.Cluster{
						Connect: func(h broker.Callbacks) broker.Node { return cluster.connect(h, broker.HistoryCallbacks{}) },
						Kill:    func(n broker.Node) { cluster.store.Crash(cluster.names[n.Name()]) },
						Timeout: time.Minute, QuietPeriod: 3 * time.Second,
					}
					if faults {
						check.Faults = cluster.faults()
					}
					c.Run(t, check)
				})
			}
		})
	}
}

func TestFaulty_KeepsContractOfHistories(t *testing.T) {
	keepsContractOfHistories(t, false)
}

func TestFaulty_KeepsContractOfHistoriesInFaults(t *testing.T) {
	keepsContractOfHistories(t, true)
}

func keepsContractOfHistories(t *testing.T, faults bool) {
	for _, c := range brokertest.HistoryCases() {
		t.Run(c.Name, func(t *testing.T) {
			for seed := range seeds(faults) {
				synctest.Test(t, func(t *testing.T) {
					cluster := newFaultyCluster(seed)
					check := brokertest.HistoryCluster{
						Connect: cluster.connect, Timeout: time.Minute, QuietPeriod: time.Second,
						Age: 10 * time.Second, IdempotencyTime: broker.IdempotencyTime,
					}
					switch {
					case !faults:
					case c.Name == "batch in faults": // the other node must not be disturbed
						check.Faults = cluster.nodeFaults()
					default:
						check.Faults = cluster.faults()
					}
					c.Run(t, check)
				})
			}
		})
	}
}
