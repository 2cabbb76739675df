package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/cluster/enginetest"
	"github.com/penstock-go/penstock/internal/testscale"
)

func TestBroker_KeepsContract(t *testing.T) {
	for _, c := range brokertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := enginetest.New()
				c.Run(t, brokertest.Cluster{
					Connect:     cluster.New(network).Connect,
					Kill:        func(s broker.Node) { s.(*cluster.Node).Kill() },
					Faults:      testscale.SoakSample(faults(network), 3),
					Timeout:     20 * time.Second,
					QuietPeriod: 3 * time.Second,
				})
				time.Sleep(time.Minute) // for what is in transit
			})
		})
	}
}

// faults returns the faults of a network, each shorter and longer than every time-out.
func faults(network *enginetest.Network) (all []brokertest.Fault) {
	for name, begin := range map[string]func(*enginetest.Faults){
		"publish errors":             func(f *enginetest.Faults) { f.FailPublish = true },
		"silent loss":                func(f *enginetest.Faults) { f.Lose = true },
		"stalled publish":            func(f *enginetest.Faults) { f.Stall = true },
		"duplication":                func(f *enginetest.Faults) { f.Duplicate = true },
		"interrupted subscriptions":  func(f *enginetest.Faults) { f.Disconnect = true },
		"subscriptions to no server": func(f *enginetest.Faults) { f.Deaf = true },
		"delay":                      func(f *enginetest.Faults) { f.Delay = 100 * time.Millisecond },
		"isolation":                  func(f *enginetest.Faults) { f.FailPublish, f.Disconnect = true, true },
		"pause":                      func(f *enginetest.Faults) { f.Stall, f.Disconnect = true, true },
		"size limit":                 func(f *enginetest.Faults) { f.MaxBytes = 45 },
	} {
		for _, d := range []time.Duration{time.Second, 10 * time.Second, 70 * time.Second, 15 * time.Minute} {
			all = append(all, brokertest.Fault{
				Name: name + " for " + d.String(), Duration: d,
				Begin: func(s broker.Node) func() {
					id := s.(*cluster.Node).Name()
					network.Update(id, begin)
					return func() { network.Update(id, func(f *enginetest.Faults) { *f = enginetest.Faults{} }) }
				},
			})
		}
	}
	return all
}
