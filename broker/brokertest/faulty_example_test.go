package brokertest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
)

// A store fails over to a replica without the last publication, though it was acknowledged. Each
// seed has other times.
func ExampleFaulty() {
	var t *testing.T // of a test function
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			store := brokertest.Faulty(seed)
			following := make(chan string, 2)
			node := store.Node("node 1").ConnectHistory(broker.Callbacks{}, broker.HistoryCallbacks{
				Following: func(topic string) { following <- topic },
			})
			node.Follow("news")
			<-following
			stored, err := node.Append(t.Context(), broker.Append{Topic: "news", Packet: []byte("hello")})
			if err != nil {
				t.Fatal(err)
			}
			store.FailOver(1)
			<-following // the subscription works again
			page, err := node.Read(t.Context(), broker.Query{Topic: "news", Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			if page.Position.Epoch == stored.Position.Epoch || page.Previous.Offset != 0 {
				t.Errorf("the loss does not show in %+v", page)
			}
			if err := node.Close(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
			if usage := store.Usage(); usage.Nodes > 0 || usage.WaitingCalls > 0 {
				t.Errorf("the store is still used: %+v", usage)
			}
		})
	}
}
