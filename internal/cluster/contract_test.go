package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/cluster/enginetest"
)

func TestBroker_KeepsContract(t *testing.T) {
	for _, c := range brokertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.Run(t, brokertest.Cluster{
					Connect:     cluster.New(enginetest.New()).Connect,
					Kill:        func(s broker.Session) { s.(*cluster.Session).Kill() },
					Timeout:     20 * time.Second,
					QuietPeriod: time.Second,
				})
			})
		})
	}
}
