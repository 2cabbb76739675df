package redis_test

import (
	"context"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/router"
)

// News is a message.
type News struct{ Text string }

// MessageType returns its name.
func (News) MessageType() string { return "NEWS" }

func ExampleNewBroker() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()

	r := router.New(&router.Options{Broker: redis.NewBroker(client)})
	defer func() { _ = r.Shutdown(context.Background()) }()
	fmt.Println(r.Publish("news", News{"to all nodes"}))
	// Output: <nil>
}
