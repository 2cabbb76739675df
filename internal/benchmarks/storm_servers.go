package main

import (
	"context"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/centrifugal/centrifuge"
	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/router"
)

// stormRooms is an environment variable with the number of rooms.
const stormRooms = "BENCHMARKS_STORM_ROOMS"

// stormHistory is how many publications a room keeps, and stormAge how long.
const (
	stormHistory = 100
	stormAge     = time.Hour
)

// A shutdowner is a handler that can be shut down.
type shutdowner interface {
	http.Handler
	Shutdown(ctx context.Context) error
}

// shutDown shuts down the server of a deploy in the background.
func shutDown(handler http.Handler) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = handler.(shutdowner).Shutdown(ctx) // clients that it has not moved fail
	}()
}

// forRooms calls publish n times for every room.
func forRooms(n int, publish func(topic string)) {
	rooms, err := strconv.Atoi(os.Getenv(stormRooms))
	check(err)
	for i := range rooms {
		for range n {
			publish("room/" + strconv.Itoa(i))
		}
	}
}

func serveStorm() (http.Handler, func(int)) {
	limits := manyFromOneAddress()
	limits.SessionsPerUser = router.Unlimited
	r := router.New(&router.Options{
		Broker: redis.NewBroker(goredis.NewClient(&goredis.Options{Addr: os.Getenv(redisAddr)})),
		Resume: router.ResumeOptions{Within: 2 * time.Minute},
		Limits: limits,
	})
	router.Topic(r, "room/{id}", &router.TopicOptions{
		Authorize: func(*router.Context, router.TopicMatch) error { return nil },
		History:   router.History{Messages: stormHistory, Age: stormAge},
	})
	message := said(Say{Room: "general", Text: "The quick brown fox jumps over the lazy dog.", N: 1})
	return r, func(n int) { forRooms(n, func(topic string) { check(r.Publish(topic, message)) }) }
}

// centrifugeNode is a handler that Shutdown ends.
type centrifugeNode struct {
	http.Handler
	*centrifuge.Node
}

func serveStormCentrifuge() (http.Handler, func(int)) {
	node := newCentrifugeOnRedis()
	node.OnConnecting(func(context.Context, centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{Credentials: &centrifuge.Credentials{UserID: "ann"}}, nil
	})
	node.OnConnect(func(client *centrifuge.Client) {
		client.OnSubscribe(func(_ centrifuge.SubscribeEvent, reply centrifuge.SubscribeCallback) {
			reply(centrifuge.SubscribeReply{Options: centrifuge.SubscribeOptions{EnableRecovery: true}}, nil)
		})
	})
	check(node.Run())
	handler := centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{
		PingPongConfig: noPings,
	})
	return centrifugeNode{handler, node}, func(n int) {
		forRooms(n, func(topic string) {
			_, err := node.Publish(topic, published, centrifuge.WithHistory(stormHistory, stormAge))
			check(err)
		})
	}
}

var stormVariants = []contender{
	{name: "storm", request: say, serve: serveStorm},
	{name: "storm centrifuge", request: rpc, serve: serveStormCentrifuge},
}
