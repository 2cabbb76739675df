package memory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http/httptest"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/router"
)

// Follow is a client's request for the news.
type Follow struct{}

// MessageType returns the name of the message.
func (Follow) MessageType() string { return "FOLLOW" }

// Following is the reply.
type Following struct{}

// MessageType returns the name of the message.
func (Following) MessageType() string { return "FOLLOWING" }

// News is what the server publishes.
type News struct {
	Text string `json:"text"`
}

// MessageType returns the name of the message.
func (News) MessageType() string { return "NEWS" }

// Two routers share a broker. A client of the first one receives what the second one publishes.
func ExampleNewBroker() {
	b := memory.NewBroker()
	first := router.New(&router.Options{Broker: b})
	second := router.New(&router.Options{Broker: b})
	router.RPC(first, func(ctx *router.Context, _ Follow) (Following, error) {
		return Following{}, ctx.Subscribe("news")
	})

	server := httptest.NewServer(first)
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, _, err := websocket.Dial(ctx, server.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.CloseNow() }()

	if err := client.Write(ctx, websocket.MessageText, []byte(`{"type":"FOLLOW","meta":{"correlationId":"1"}}`)); err != nil {
		log.Fatal(err)
	}
	if _, _, err := client.Read(ctx); err != nil { // the reply: the client is subscribed
		log.Fatal(err)
	}
	if err := second.Publish("news", News{Text: "hello from the second router"}); err != nil {
		log.Fatal(err)
	}
	_, text, err := client.Read(ctx)
	if err != nil {
		log.Fatal(err)
	}
	var message struct {
		Type    string
		Payload News
	}
	if err := json.Unmarshal(text, &message); err != nil {
		log.Fatal(err)
	}
	fmt.Println(message.Type, message.Payload.Text)
	// Output: NEWS hello from the second router
}
