package redis

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/internal/redistest"
)

// brokers makes a cluster of nodes, each with a client of its own as in a process of
// its own.
func brokers(client func() goredis.UniversalClient) brokertest.Cluster {
	return brokertest.Cluster{
		Connect:     func(node broker.Handler) broker.Session { return NewBroker(client()).Connect(node) },
		Kill:        func(l broker.Session) { l.(*link).kill() },
		Timeout:     20 * time.Second,
		QuietPeriod: 20 * time.Millisecond,
	}
}

// kill ends a node without a goodbye.
func (l *link) kill() {
	for _, w := range l.ways {
		w.outbox.close()
	}
	l.cancel()
}

func TestBrokerKeepsTheContract(t *testing.T) {
	server := redistest.Start(t)
	for _, c := range brokertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			c.Run(t, brokers(func() goredis.UniversalClient { return server.Client(t) }))
		})
	}
}

func TestBrokerKeepsTheContractOnACluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	for _, c := range brokertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			c.Run(t, brokers(func() goredis.UniversalClient { return cluster.Client(t) }))
		})
	}
}
