package redis

import (
	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/adapters/redis/internal/pubsub"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/redisclient"
)

// A Broker is a [broker.Broker] on Redis Pub/Sub, or on sharded Pub/Sub (Redis 7.0 or newer) if
// the client is for a Cluster. It is safe for concurrent use.
//
// A node subscribes to the topics that have local subscribers, on connections of its own; on a
// Cluster, it has them to each master. Messages that wait at the same time are published in one
// round trip. While Redis is unavailable, a node still serves its own subscribers. Up to 32 MiB
// wait to be published, on a Cluster for each master; beyond that Publish returns an error. Packets
// are numbered, so that each receiver detects its losses and reports them with
// [broker.Callbacks.MessagesLost]. If a connection is silent for five seconds, or if the node does
// not receive there what it publishes itself for a second, another one is opened. It replaces the
// first one if that does not deliver within half a second; otherwise nothing is lost. Nodes publish
// a heartbeat every second; a node without one for four seconds has failed.
//
// Topics are channels named penstock:topic:<topic>, on a Cluster
// penstock:{<partition>}:topic:<topic>, where a topic's name decides the partition, and the
// partitions are spread evenly over the slots. When slots are moved to another master, only the
// topics of these slots are interrupted, each until the node has subscribed there. [WithNamespace]
// and databases above 0 change the beginning.
type Broker struct {
	engine *pubsub.Engine
	broker *cluster.Broker
}

var _ broker.Broker = (*Broker)(nil)

// NewBroker returns a broker. It panics if the client is nil, or a [goredis.Ring], which publishes a
// message to one server and subscribes on another. It sends nothing before Connect.
// The client must have timeouts, as it has by default: without them, a server that does not
// respond blocks the broker.
func NewBroker(client goredis.UniversalClient) *Broker {
	if client == nil {
		panic("redis: NewBroker needs a client")
	}
	e := newEngine(client)
	return &Broker{e, cluster.New(e)}
}

func newEngine(client goredis.UniversalClient) *pubsub.Engine {
	client, prefix, _ := redisclient.Unwrap(client)
	if _, isRing := client.(*goredis.Ring); isRing {
		panic("redis: NewBroker cannot use a *redis.Ring; use a client of one server, of Sentinel or of a Cluster")
	}
	return pubsub.New(client, prefix)
}

// Connect adds a node.
func (b *Broker) Connect(handler broker.Callbacks) broker.Node { return b.broker.Connect(handler) }
