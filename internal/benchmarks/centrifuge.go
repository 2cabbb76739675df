package main

import (
	"context"
	"net/http"
	"os"
	"time"

	"github.com/centrifugal/centrifuge"
)

func serveCentrifuge() (http.Handler, func(int)) {
	node, err := centrifuge.New(centrifuge.Config{})
	check(err)
	return serveCentrifugeNode(node, centrifuge.WebsocketConfig{}), func(n int) {
		for range n {
			_, err := node.Publish("all", published)
			check(err)
		}
	}
}

// serveCentrifugeNode runs a node whose connections all subscribe to one channel.
func serveCentrifugeNode(node *centrifuge.Node, cfg centrifuge.WebsocketConfig) http.Handler {
	node.OnConnecting(func(context.Context, centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{
			Credentials:   &centrifuge.Credentials{UserID: "ann"},
			Subscriptions: map[string]centrifuge.SubscribeOptions{"all": {}},
		}, nil
	})
	node.OnConnect(func(client *centrifuge.Client) {
		client.OnRPC(func(e centrifuge.RPCEvent, reply centrifuge.RPCCallback) {
			reply(centrifuge.RPCReply{Data: e.Data}, nil)
		})
	})
	check(node.Run())
	return centrifuge.NewWebsocketHandler(node, cfg)
}

// noPings is for clients that count what they receive, which do not answer pings.
var noPings = centrifuge.PingPongConfig{PingInterval: time.Hour, PongTimeout: time.Minute}

// newCentrifugeOnRedis returns a node whose broker is the Redis server of the environment.
func newCentrifugeOnRedis() *centrifuge.Node {
	node, err := centrifuge.New(centrifuge.Config{})
	check(err)
	shard, err := centrifuge.NewRedisShard(node, centrifuge.RedisShardConfig{Address: os.Getenv(redisAddr)})
	check(err)
	broker, err := centrifuge.NewRedisBroker(node, centrifuge.RedisBrokerConfig{Shards: []*centrifuge.RedisShard{shard}})
	check(err)
	node.SetBroker(broker)
	return node
}
