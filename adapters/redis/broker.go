package redis

import (
	"context"
	"crypto/rand"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/broker"
)

// Structure, goroutines and locks of the broker.
//
// A session (broker_session.go) is this process as a node. It has one subscriber, or
// clusterSubscribers of them on a Cluster. Each subscriber (broker_subscriber.go) has an outbox
// (broker_outbox.go), which publishes on the same topics.
//
// Goroutines:
//   - One per session, heartbeat, publishes heartbeats and expires peers. It ends with Close.
//   - One per subscriber, run, opens connections and receives from them; nothing else receives.
//     It ends with Close. A function registered with context.AfterFunc closes its connection.
//   - One per subscriber while subscriptions change, that of subscriber.changes. It alone sends
//     SUBSCRIBE and UNSUBSCRIBE of topics, so that these have the order of the calls.
//   - One per outbox while messages wait, run, publishes them. Close does not wait for it.
//
// The functions of the Handler are called by the first three. Packets on one topic are delivered
// by the goroutine of that topic's subscriber alone, one at a time.
//
// Locks: session.mu guards the peers, subscriber.mu the subscriptions and their trackers,
// outbox.mu the messages that wait, their numbers and the losses. No goroutine holds two of
// them, and none holds one while it adds to subscriber.changes, calls a function of the Handler
// or waits for Redis. What is not guarded does not change after Connect.

// A Broker is a [broker.Broker] on Redis Pub/Sub, or on sharded Pub/Sub (Redis 7.0 or newer) if
// the client is for a Cluster. It is safe for concurrent use.
//
// A node subscribes to the topics that have local subscribers, on a connection of its own, or on
// 16 of them on a Cluster. Messages that wait at the same time are published in one round trip.
// While Redis is unavailable, a node still serves its own subscribers. Up to 16 MiB wait to be
// published, on a Cluster in each of 16 groups of topics; packets beyond that are lost. Packets are
// numbered, so that each receiver detects its losses and reports them with
// [broker.Handler.MessagesLost]. A connection that is silent for two seconds is replaced. Nodes
// publish a heartbeat every second; a node without one for four seconds has failed.
//
// Topics are channels named penstock:topic:<topic>, on a Cluster
// penstock:{<0 to 15>}:topic:<topic>.
type Broker struct {
	client goredis.UniversalClient
}

var _ broker.Broker = (*Broker)(nil)

// NewBroker returns a broker. It panics if the client is nil. It sends nothing before Connect.
// The client must have timeouts, as it has by default: without them, a server that does not
// respond blocks the broker.
func NewBroker(client goredis.UniversalClient) *Broker {
	if client == nil {
		panic("redis: NewBroker needs a client")
	}
	return &Broker{client}
}

// clusterSubscribers is the number of subscribers on a Cluster, each in a slot of its own. All
// nodes must use the same number, since it determines the channel of a topic.
const clusterSubscribers = 16

// Connect adds a node.
func (b *Broker) Connect(handler broker.Handler) broker.Session {
	ctx, cancel := context.WithCancel(context.Background())
	s := &session{handler: handler, name: rand.Text(), cancel: cancel, peers: map[string]*peer{}}
	count := 1
	if _, cluster := b.client.(*goredis.ClusterClient); cluster {
		count = clusterSubscribers
	}
	for n := range count {
		prefix := "penstock"
		if count > 1 {
			prefix += ":{" + strconv.Itoa(n) + "}"
		}
		sub := &subscriber{session: s, prefix: prefix, client: b.client, sharded: count > 1, topics: map[string]*topicState{}}
		sub.outbox = newOutbox(b.client, s.name, sub.sharded)
		s.subscribers = append(s.subscribers, sub)
	}
	for _, sub := range s.subscribers { // the list, which their goroutines read, is complete
		go sub.run(ctx)
	}
	go s.heartbeat(ctx)
	return s
}
