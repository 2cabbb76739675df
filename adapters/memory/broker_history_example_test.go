package memory_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// A node stores publications. Another one follows the topic, and later reads what it has missed.
func ExampleBroker_ConnectHistory() {
	b := memory.NewBroker()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	following, published := make(chan string, 10), make(chan broker.Publication, 10) // a handler must not block
	publisher := b.ConnectHistory(broker.Callbacks{}, broker.HistoryCallbacks{})
	defer func() { _ = publisher.Close(ctx) }()
	follower := b.ConnectHistory(broker.Callbacks{}, broker.HistoryCallbacks{
		Following: func(topic string) { following <- topic },
		Published: func(_ string, p broker.Publication) { published <- p },
	})
	defer func() { _ = follower.Close(ctx) }()

	retention := broker.Retention{Messages: 100, Age: time.Hour}
	store := func(text, key string) broker.Appended {
		result, err := publisher.Append(ctx, broker.Append{Topic: "news", Retention: retention, Packet: []byte(text), IdempotencyKey: key})
		if err != nil {
			log.Fatal(err)
		}
		return result
	}

	follower.Follow("news")
	<-following // everything that is stored from this moment on is published
	store("first", "1")
	received := <-published
	fmt.Printf("received %q at offset %d\n", received.Packet, received.Position.Offset)
	follower.Unfollow("news")

	store("second", "2")
	store("third", "3")
	again := store("third", "3") // a retry
	fmt.Printf("offset %d, duplicate: %t\n", again.Position.Offset, again.Duplicate)

	page, err := follower.Read(ctx, broker.Query{Topic: "news", Retention: retention, After: received.Position.Offset, Limit: 10})
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range page.Publications {
		fmt.Printf("missed %q at offset %d\n", p.Packet, p.Position.Offset)
	}
	// Output:
	// received "first" at offset 1
	// offset 3, duplicate: true
	// missed "second" at offset 2
	// missed "third" at offset 3
}

// A router without Redis bounds the memory of its histories. This one is full after the first message.
func ExampleNewBrokerMaxHistoryBytes() {
	r := router.New(&router.Options{Broker: memory.NewBrokerMaxHistoryBytes(2000)})
	router.Topic(r, "room/{id}", &router.TopicOptions{History: router.History{Messages: 100}})
	for range 2 {
		err := r.Publish("room/go", News{Text: strings.Repeat("x", 1000)}, router.Stored(context.Background(), nil))
		fmt.Printf("%q\n", errors.CodeOf(err))
	}
	// Output:
	// ""
	// "RESOURCE_EXHAUSTED"
}
