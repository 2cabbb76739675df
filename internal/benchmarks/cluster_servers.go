package main

import (
	"context"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/centrifugal/centrifuge"
	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/router"
)

// clusterVariants are the servers of clusterPeers. All their connections subscribe to one topic.
var clusterVariants = []contender{
	{name: "cluster penstock", request: say, serve: serveCluster},
	{name: "cluster centrifuge", hello: `{"id":1,"connect":{}}`, request: rpc, serve: serveClusterCentrifuge},
}

func serveCluster() (http.Handler, func(int)) {
	handler, _ := serveOptions(&router.Options{
		Broker: redis.NewBroker(goredis.NewClient(&goredis.Options{Addr: os.Getenv(redisAddr)})),
		OnOpen: func(_ context.Context, c *router.Conn) error { return c.Subscribe("all") },
	})
	return handler, publishPaced(func() error { return handler.(*router.Router).Publish("all", queuedMessage) })
}

func serveClusterCentrifuge() (http.Handler, func(int)) {
	node := newCentrifugeOnRedis()
	handler := serveCentrifugeNode(node, centrifuge.WebsocketConfig{PingPongConfig: noPings})
	return handler, publishPaced(func() error {
		_, err := node.Publish("all", published)
		return err
	})
}

// burstPublishers is how many goroutines publish a burst: a publication of centrifuge waits for Redis.
const burstPublishers = 50

// publishPaced returns a function that publishes n messages on many goroutines, or -n with pauses on
// one if n is negative.
func publishPaced(publish func() error) func(n int) {
	return func(n int) {
		var wg sync.WaitGroup
		for range burstPublishers {
			wg.Go(func() {
				for range n / burstPublishers {
					check(publish())
				}
			})
		}
		wg.Wait()
		for range -n {
			check(publish())
			time.Sleep(2 * time.Millisecond)
		}
	}
}
