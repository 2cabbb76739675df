package router_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// A Headline is published on topics with a history.
type Headline struct {
	Text string `json:"text"`
}

func (Headline) MessageType() string { return "HEADLINE" }

// A client that returns presents its position, and receives what it has missed.
func ExampleStored() {
	r := router.New(nil)
	router.Topic(r, "news/{section}", &router.TopicOptions{
		Authorize: func(*router.Context, router.TopicMatch) error { return nil }, // every client may read
		History:   router.History{Messages: 100, Age: time.Hour},
	})
	server := httptest.NewServer(r)
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	var position broker.Position // of the first headline, up to which the client has read
	for _, text := range []string{"one", "two", "three"} {
		at, err := publishStored(ctx, r, "news/go", Headline{text}, router.IdempotencyKey(text))
		if err != nil {
			log.Fatal(err)
		}
		if position.Epoch == "" {
			position = at
		}
	}

	ws, _, err := websocket.Dial(ctx, server.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ws.CloseNow()
	subscribe := map[string]any{"type": "$ws:subscribe", "payload": map[string]any{"topic": "news/go", "epoch": position.Epoch, "offset": position.Offset}}
	if err := wsjson.Write(ctx, ws, subscribe); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		var m struct {
			Type    string
			Meta    struct{ Offset uint64 }
			Payload struct {
				Recovered bool
				Text      string
			}
		}
		if err := wsjson.Read(ctx, ws, &m); err != nil {
			log.Fatal(err)
		}
		if m.Type == "$ws:subscribed" {
			fmt.Println("recovered:", m.Payload.Recovered)
			continue
		}
		fmt.Println(m.Meta.Offset, m.Payload.Text)
	}
	// Output:
	// recovered: true
	// 2 two
	// 3 three
}

// An order is acknowledged when two servers have it.
func ExampleHistory_durability() {
	r := router.New(nil) // with Redis: &router.Options{Broker: redis.NewBroker(client)}
	router.Topic(r, "orders/{id}", &router.TopicOptions{
		History: router.History{Messages: 100, Durability: broker.Durability{Replicas: 1}},
	})
	publish := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := r.Publish("orders/4711", Headline{"paid"}, router.IdempotencyKey("order-4711"), router.Stored(ctx, nil))
		return err
	}
	err := publish()
	for errors.CodeOf(err) == errors.OutcomeUnknown {
		err = publish() // confirms the same message
	}
	fmt.Println("acknowledged:", err == nil)
	// Output: acknowledged: true
}
