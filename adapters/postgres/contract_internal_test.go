package postgres

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// selectCases leaves out those cases in the quick tier that wait until a fault is noticed or the
// presence of a failed node expires, which takes seconds.
func selectCases[C any](cases []C, name func(C) string) []C {
	slow := []string{"loss is reported", "presence converges", "presence of a node that ends", "crash", "outcome is true", "value outcome is true", "batch in faults", "fenced outcome is true", "state in parts"}
	return testscale.Pick(slices.DeleteFunc(slices.Clone(cases), func(c C) bool { return slices.Contains(slow, name(c)) }), cases)
}

// TestBroker_KeepsContract gives each case a schema, because the cases use the same topics.
func TestBroker_KeepsContract(t *testing.T) {
	t.Parallel()
	for _, c := range selectCases(brokertest.Cases(), func(c brokertest.Case) string { return c.Name }) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			f := newFaultyCluster(t)
			c.Run(t, brokertest.Cluster{
				Connect: func(handler broker.Callbacks) broker.Node { return f.connect(handler, broker.HistoryCallbacks{}) },
				Kill:    func(n broker.Node) { n.(*historyNode).Kill() },
				Faults:  f.faults(), Timeout: 20 * time.Second, QuietPeriod: 100 * time.Millisecond,
			})
		})
	}
}

func TestHistory_KeepsContract(t *testing.T) {
	t.Parallel()
	for _, c := range selectCases(brokertest.HistoryCases(), func(c brokertest.HistoryCase) string { return c.Name }) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t, newFaultyCluster(t).historyCluster())
		})
	}
}

// TestHistory_LifetimesKeepContract runs the cases that wait until something is forgotten.
func TestHistory_LifetimesKeepContract(t *testing.T) {
	t.Parallel()
	lifetimes := testscale.Sample([]string{"forgotten topic", "metadata is kept by reads", "key expires", "forgotten fence"}, 1)
	for _, c := range brokertest.HistoryCases() {
		if !slices.Contains(lifetimes, c.Name) {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			f := newFaultyCluster(t)
			f.edit = func(b *Broker) { b.metadataAge, b.idempotencyTime = time.Second, time.Second }
			cluster := f.historyCluster()
			cluster.MetadataAge, cluster.IdempotencyTime = time.Second, time.Second
			c.Run(t, cluster)
		})
	}
}

// TestBroker_KeepsContractWhenServerRestarts runs the cases with faults on a server that is killed.
func TestBroker_KeepsContractWhenServerRestarts(t *testing.T) {
	testscale.FullOnly(t, "TestFailover_RestartKeepsEpoch")
	t.Parallel()
	for _, c := range brokertest.HistoryCases() {
		if c.Name != "outcome is true" && c.Name != "value outcome is true" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			connect, faults := restartingServer(t)
			c.Run(t, brokertest.HistoryCluster{Connect: connect, Faults: faults, Timeout: 30 * time.Second, QuietPeriod: 100 * time.Millisecond, Age: time.Second})
		})
	}
	for _, c := range brokertest.Cases() {
		if c.Name != "loss is reported" {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			connect, faults := restartingServer(t)
			c.Run(t, brokertest.Cluster{
				Connect: func(handler broker.Callbacks) broker.Node { return connect(handler, broker.HistoryCallbacks{}) },
				Kill:    func(n broker.Node) { n.(*historyNode).Kill() },
				Faults:  faults, Timeout: 30 * time.Second, QuietPeriod: 100 * time.Millisecond,
			})
		})
	}
}

// restartingServer returns how a node connects to a server of the test, and the fault of that server.
func restartingServer(t *testing.T) (func(broker.Callbacks, broker.HistoryCallbacks) broker.HistoryNode, []brokertest.Fault) {
	server := startServer(t)
	connect := func(handler broker.Callbacks, history broker.HistoryCallbacks) broker.HistoryNode {
		return NewBroker(openPool(t, server.URL()), nil).ConnectHistory(handler, history)
	}
	return connect, []brokertest.Fault{{Name: "PostgreSQL is killed and restarted", Duration: time.Second, Begin: func(broker.Node) func() {
		server.Kill()
		return server.Restart
	}}}
}
