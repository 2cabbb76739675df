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

// Follow subscribes to the price of a stock.
type Follow struct {
	Symbol string `json:"symbol"`
}

func (Follow) MessageType() string { return "FOLLOW" }

// Following is the reply to Follow.
type Following struct {
	Symbol string `json:"symbol"`
}

func (Following) MessageType() string { return "FOLLOWING" }

// Price is published whenever the price of a stock changes.
type Price struct {
	Symbol string  `json:"symbol"`
	Value  float64 `json:"value"`
}

func (Price) MessageType() string { return "PRICE" }

// A handler subscribes its connection to a topic. Code outside of handlers publishes to all
// subscribers.
func ExampleRouter_Publish() {
	r := router.New(nil)
	router.RPC(r, func(ctx *router.Context, m Follow) (Following, error) {
		return Following(m), ctx.Subscribe("price/" + m.Symbol)
	})
	server := httptest.NewServer(r)
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, server.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ws.CloseNow()
	follow := Follow{Symbol: "GOOG"}
	if err := wsjson.Write(ctx, ws, map[string]any{"type": follow.MessageType(), "payload": follow}); err != nil {
		log.Fatal(err)
	}
	var following struct {
		Payload Following `json:"payload"`
	}
	if err := wsjson.Read(ctx, ws, &following); err != nil { // the subscription is complete
		log.Fatal(err)
	}

	for _, price := range []Price{{"GOOG", 170.5}, {"MSFT", 420}, {"GOOG", 171}} {
		if err := r.Publish("price/"+price.Symbol, price); err != nil {
			log.Fatal(err)
		}
	}
	for range 2 {
		var update struct {
			Payload Price `json:"payload"`
		}
		if err := wsjson.Read(ctx, ws, &update); err != nil {
			log.Fatal(err)
		}
		fmt.Println(update.Payload.Symbol, update.Payload.Value)
	}
	// Output:
	// GOOG 170.5
	// GOOG 171
}
