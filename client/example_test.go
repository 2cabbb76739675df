//go:build !js

package client_test

import (
	"context"
	"fmt"
	"iter"
	"log"
	"net/http/httptest"
	"strings"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// JoinRoom is a call.
type JoinRoom struct {
	Room string `json:"room"`
}

func (JoinRoom) MessageType() string { return "JOIN_ROOM" }

// RoomJoined is the reply to JoinRoom.
type RoomJoined struct {
	Members int `json:"members"`
}

func (RoomJoined) MessageType() string { return "ROOM_JOINED" }

func ExampleCall() {
	// The server.
	r := router.New(nil)
	router.RPC(r, func(_ *router.Context, m JoinRoom) (RoomJoined, error) {
		if m.Room != "go" {
			return RoomJoined{}, errors.Errorf(errors.NotFound, "room %q does not exist", m.Room)
		}
		return RoomJoined{Members: 3}, nil
	})
	server := httptest.NewServer(r)
	defer server.Close()

	// The client.
	ctx := context.Background()
	c := client.New(strings.Replace(server.URL, "http", "ws", 1), nil)
	defer func() { _ = c.Close(ctx) }()
	joined, err := client.Call[RoomJoined](ctx, c, JoinRoom{Room: "go"})
	fmt.Println(joined.Members, err)
	_, err = client.Call[RoomJoined](ctx, c, JoinRoom{Room: "rust"})
	fmt.Println(errors.CodeOf(err))
	// Output:
	// 3 <nil>
	// NOT_FOUND
}

// Export is the request of a stream.
type Export struct {
	Table string `json:"table"`
}

func (Export) MessageType() string { return "EXPORT" }

// Row is an item of a stream.
type Row struct {
	ID int `json:"id"`
}

func ExampleStream() {
	// The server.
	r := router.New(nil)
	router.Stream(r, func(*router.Context, Export) iter.Seq2[Row, error] {
		return func(yield func(Row, error) bool) {
			for id := 1; yield(Row{id}, nil); id++ {
			}
		}
	})
	server := httptest.NewServer(r)
	defer server.Close()

	// The client. Leaving the loop cancels the stream.
	ctx := context.Background()
	c := client.New(strings.Replace(server.URL, "http", "ws", 1), nil)
	defer func() { _ = c.Close(ctx) }()
	for row, err := range client.Stream[Row](ctx, c, Export{Table: "users"}) {
		if err != nil {
			log.Print(err)
			return
		}
		fmt.Println(row.ID)
		if row.ID == 3 {
			break
		}
	}
	// Output:
	// 1
	// 2
	// 3
}

// Price is published on a topic.
type Price struct {
	Symbol string  `json:"symbol"`
	Euros  float64 `json:"euros"`
}

func (Price) MessageType() string { return "PRICE" }

func ExampleClient_Subscribe() {
	// The server.
	r := router.New(nil)
	router.Topic(r, "prices", &router.TopicOptions{
		History:   router.History{Messages: 100},
		Authorize: func(*router.Context, router.TopicMatch) error { return nil },
	})
	server := httptest.NewServer(r)
	defer server.Close()

	// The client. After an interruption, it recovers what it has missed.
	ctx := context.Background()
	c := client.New(strings.Replace(server.URL, "http", "ws", 1), nil)
	defer func() { _ = c.Close(ctx) }()
	received := make(chan Price)
	client.On(c, func(p Price, _ *client.Received) { received <- p })
	prices, err := c.Subscribe(ctx, "prices", &client.SubscribeOptions{
		OnLoss: func(client.Loss) { log.Print("prices were missed") },
	})
	if err != nil {
		log.Print(err)
		return
	}
	defer prices.Unsubscribe()

	_ = r.Publish("prices", Price{"ACME", 9.99})
	fmt.Println((<-received).Euros)
	// Output: 9.99
}

// Payloads in CBOR, which the server supports besides JSON.
func ExampleCodec() {
	// The server.
	r := router.New(&router.Options{Codecs: []router.Codec{cbor.New(nil)}})
	router.RPC(r, func(*router.Context, JoinRoom) (RoomJoined, error) { return RoomJoined{Members: 3}, nil })
	server := httptest.NewServer(r)
	defer server.Close()

	// The client.
	ctx := context.Background()
	c := client.New(strings.Replace(server.URL, "http", "ws", 1), &client.Options{Codec: cbor.New(nil)})
	defer func() { _ = c.Close(ctx) }()
	joined, err := client.Call[RoomJoined](ctx, c, JoinRoom{Room: "go"})
	fmt.Println(joined.Members, err)
	// Output: 3 <nil>
}
