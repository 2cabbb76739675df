package broker_test

import (
	"context"
	"fmt"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
)

// Two nodes of a cluster. The router calls these functions if router.Options.Broker is set; a
// program without a router can call them directly.
func Example() {
	packets, left := make(chan string), make(chan string)
	var b broker.Broker = memory.NewBroker()
	subscriber := b.Connect(broker.Callbacks{
		Receive:      func(topic, _ string, packet []byte) { packets <- fmt.Sprintf("%s: %s", topic, packet) },
		Subscribed:   func(topic string) { packets <- topic + ": subscribed" },
		MessagesLost: func(topic string, n int) { packets <- fmt.Sprintf("%s: %d packets lost", topic, n) },
		NodeLeft:     func(string) { left <- "the publisher has left" },
	})
	publisher := b.Connect(broker.Callbacks{})

	subscriber.Subscribe("news")
	fmt.Println(<-packets)
	if err := publisher.Publish("news", []byte("hello")); err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-packets)
	_ = publisher.Close(context.Background())
	fmt.Println(<-left)
	_ = subscriber.Close(context.Background())
	// Output:
	// news: subscribed
	// news: hello
	// the publisher has left
}
