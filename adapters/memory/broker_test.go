package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
)

func TestBroker_KeepsContract(t *testing.T) {
	for _, c := range brokertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.Run(t, brokertest.Cluster{Connect: memory.NewBroker().Connect, Timeout: time.Second, QuietPeriod: time.Second})
			})
		})
	}
}

// historyCluster returns a cluster without faults, for a bubble.
func historyCluster() brokertest.HistoryCluster {
	return brokertest.HistoryCluster{
		Connect: memory.NewBroker().ConnectHistory, Timeout: time.Second, QuietPeriod: time.Second,
		Age: time.Minute, IdempotencyTime: broker.IdempotencyTime, MetadataAge: 24 * time.Hour,
	}
}

func TestBroker_KeepsContractOfHistories(t *testing.T) {
	for _, c := range brokertest.HistoryCases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Run(t, historyCluster()) })
		})
	}
}

func TestBroker_SessionWithHistoriesKeepsContract(t *testing.T) {
	for _, c := range brokertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				connect := memory.NewBroker().ConnectHistory
				c.Run(t, brokertest.Cluster{
					Connect: func(h broker.Handler) broker.Session { return connect(h, broker.HistoryHandler{}) },
					Timeout: time.Second, QuietPeriod: time.Second,
				})
			})
		})
	}
}
