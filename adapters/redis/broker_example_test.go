package redis_test

import (
	"context"
	"fmt"
	"net/http"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/router"
)

// Follow is a client's request for the news.
type Follow struct{}

// MessageType returns the name of the message.
func (Follow) MessageType() string { return "FOLLOW" }

// News is what the server publishes.
type News struct {
	Text string `json:"text"`
}

// MessageType returns the name of the message.
func (News) MessageType() string { return "NEWS" }

// Each node of the application runs this program with the same Redis.
func ExampleNewBroker() {
	client := goredis.NewClient(&goredis.Options{Addr: redisAddr()})
	defer func() { _ = client.Close() }()

	r := router.New(&router.Options{Broker: redis.NewBroker(client)})
	defer func() { _ = r.Shutdown(context.Background()) }() // also disconnects the node from the broker
	router.On(r, func(ctx *router.Context, _ Follow) error {
		return ctx.Subscribe("news")
	})
	mux := http.NewServeMux()
	mux.Handle("/ws", r) // for http.ListenAndServe

	// Every client that follows the news receives this, on whatever node it is connected.
	err := r.Publish("news", News{Text: "hello to all nodes"})
	fmt.Println(err)
	// Output: <nil>
}
