package redis

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/brokertest"
)

// brokers makes a cluster of nodes, each with a client of its own as in a process of
// its own.
func brokers(client func() goredis.UniversalClient) brokertest.Cluster {
	return brokertest.Cluster{
		Join:     func(node router.Node) router.Link { return NewBroker(client()).Join(node) },
		Kill:     func(l router.Link) { l.(*link).kill() },
		Patience: 20 * time.Second,
		Quiet:    20 * time.Millisecond,
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
