//go:build !js

package routertest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A Tick is a publication of the topic "clock".
type Tick struct{ N int }

func (Tick) MessageType() string { return "TICK" }

// newClock starts the application of a node.
func newClock(b broker.HistoryBroker) routertest.App {
	r := router.New(&router.Options{Broker: b})
	router.Topic(r, "clock", &router.TopicOptions{
		Authorize: func(*router.Context, router.TopicMatch) error { return nil },
		History:   router.History{Messages: 100, Age: time.Minute},
	})
	return r
}

// checkDeploy replaces all nodes while one of them publishes, and checks that a client receives everything.
func checkDeploy(t testing.TB) {
	cluster := routertest.NewCluster(t, newClock, nil)
	ann := cluster.Client("ann", nil)
	if err := ann.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	received := 0
	client.On(ann, func(Tick, *client.Received) { received++ })
	if _, err := ann.Subscribe(t.Context(), "clock", nil); err != nil {
		t.Fatal(err)
	}
	const ticks = 10
	for n := range ticks {
		if n%3 == 1 {
			cluster.Deploy()
		}
		r := cluster.App(1 + n%3).(*router.Router)
		if err := r.Publish("clock", Tick{n}, router.Stored(t.Context(), nil)); err != nil {
			t.Error(err)
		}
	}
	cluster.Wait(time.Minute)
	if received != ticks {
		t.Errorf("ann has received %d of %d ticks", received, ticks)
	}
}

// A rolling deploy: each node shuts down gracefully and starts again, and clients miss nothing. That no call is lost,
// nothing arrives twice or out of order, and no loss is reported is checked without a line of code.
func ExampleCluster_Deploy() {
	var t *testing.T // the parameter of func TestDeploy(t *testing.T)

	synctest.Test(t, func(t *testing.T) { checkDeploy(t) })
}
