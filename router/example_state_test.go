package router_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/penstock-go/penstock/router"
)

// A SharePrice is the current price of a share.
type SharePrice struct {
	Symbol string `json:"symbol"`
	Cents  int    `json:"cents"`
}

func (SharePrice) MessageType() string { return "SHARE_PRICE" }

// ConflationKey makes the message the current state of its symbol.
func (p SharePrice) ConflationKey() string { return p.Symbol }

// A ShareRemoved ends the state of a symbol.
type ShareRemoved struct {
	Symbol string `json:"symbol"`
}

func (ShareRemoved) MessageType() string { return "SHARE_REMOVED" }

// ConflationKey returns the key that is removed.
func (p ShareRemoved) ConflationKey() string { return p.Symbol }

// A client that joins late receives the current price of each share, and then every change.
func ExampleRemoved() {
	r := router.New(nil)
	router.Topic(r, "prices", &router.TopicOptions{
		Authorize: func(*router.Context, router.TopicMatch) error { return nil }, // every client may read
		History:   router.History{Messages: 1},
	})
	server := httptest.NewServer(r)
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	publish := func(m router.Message, opts ...router.PublishOption) {
		if err := r.Publish("prices", m, append(opts, router.Stored(ctx, nil))...); err != nil {
			log.Fatal(err)
		}
	}
	publish(SharePrice{"ACME", 4711})
	publish(SharePrice{"GO", 189})
	publish(SharePrice{"GO", 190})
	publish(SharePrice{"OLD", 1})
	publish(ShareRemoved{"OLD"}, router.Removed())

	ws, _, err := websocket.Dial(ctx, server.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ws.CloseNow()
	subscribe := map[string]any{"type": "$ws:subscribe", "payload": map[string]any{"topic": "prices", "state": true}}
	if err := wsjson.Write(ctx, ws, subscribe); err != nil {
		log.Fatal(err)
	}
	for n := range 4 {
		var m struct {
			Type    string
			Payload struct {
				State  int
				Symbol string
				Cents  int
			}
		}
		if err := wsjson.Read(ctx, ws, &m); err != nil {
			log.Fatal(err)
		}
		if n == 0 {
			fmt.Println("keys:", m.Payload.State)
			publish(ShareRemoved{"ACME"}, router.Removed())
			continue
		}
		fmt.Println(m.Type, m.Payload.Symbol, m.Payload.Cents)
	}
	// Output:
	// keys: 2
	// SHARE_PRICE ACME 4711
	// SHARE_PRICE GO 190
	// SHARE_REMOVED ACME 0
}
