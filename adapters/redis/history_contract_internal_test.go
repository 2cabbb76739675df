package redis

import (
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// testHistoryCluster connects nodes that each have their own client, as in separate processes.
func testHistoryCluster(client func() goredis.UniversalClient) brokertest.HistoryCluster {
	return brokertest.HistoryCluster{
		Connect: func(handler broker.Callbacks, history broker.HistoryCallbacks) broker.HistoryNode {
			return NewBroker(client()).ConnectHistory(handler, history)
		},
		Timeout:     20 * time.Second,
		QuietPeriod: 20 * time.Millisecond,
		Age:         300 * time.Millisecond,
	}
}

func TestHistory_KeepsContract(t *testing.T) {
	t.Parallel()
	for _, c := range selectCases(brokertest.HistoryCases(), func(c brokertest.HistoryCase) string { return c.Name }) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			f := &faultyCluster{t: t, server: redistest.Start(t), proxies: map[broker.Node]*redistest.Proxy{}}
			cluster := testHistoryCluster(nil)
			cluster.Faults = f.cluster().Faults
			cluster.Connect = func(handler broker.Callbacks, history broker.HistoryCallbacks) (s broker.HistoryNode) {
				f.connectWith(func(client goredis.UniversalClient) broker.Node {
					s = NewBroker(client).ConnectHistory(handler, history)
					return s
				}, func(o *goredis.Options) {
					if strings.Contains(c.Name, "outcome") { // the case waits for each publication during a fault
						o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.DialerRetries = 100*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond, 1
					}
				})
				return s
			}
			c.Run(t, cluster)
		})
	}
}

func TestHistory_KeepsContractOnCluster(t *testing.T) {
	testscale.FullOnly(t, "TestHistory_KeepsContract")
	t.Parallel()
	servers := redistest.StartCluster(t)
	for _, c := range testscale.SoakSample(brokertest.HistoryCases(), 15) {
		t.Run(c.Name, func(t *testing.T) {
			c.Run(t, testHistoryCluster(func() goredis.UniversalClient { return servers.Client(t) }))
		})
	}
}
