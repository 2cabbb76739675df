package router_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// JoinRoom subscribes the client to a room.
type JoinRoom struct {
	Room string `json:"room"`
}

func (JoinRoom) MessageType() string { return "JOIN_ROOM" }

// RoomJoined is the reply to JoinRoom.
type RoomJoined struct {
	Room string `json:"room"`
}

func (RoomJoined) MessageType() string { return "ROOM_JOINED" }

// RoomMessage is sent by a client and published to everybody in the room.
type RoomMessage struct {
	Room string `json:"room"`
	Text string `json:"text"`
}

func (RoomMessage) MessageType() string { return "ROOM_MESSAGE" }

// Validate is called before the handler.
func (m RoomMessage) Validate() error {
	if m.Text == "" {
		return errors.InvalidField("text", "must not be empty")
	}
	return nil
}

// A chat server: clients join rooms by a call and publish messages by an event.
func Example() {
	r := router.New(nil)
	router.RPC(r, func(ctx *router.Context, m JoinRoom) (RoomJoined, error) {
		return RoomJoined(m), ctx.Subscribe(m.Room)
	})
	router.On(r, func(ctx *router.Context, m RoomMessage) error {
		return ctx.Publish(m.Room, m)
	})
	mux := http.NewServeMux()
	mux.Handle("/ws", r)
	server := httptest.NewServer(mux) // in a program: http.Server
	defer server.Close()

	// A client, which is usually a browser.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, server.URL+"/ws", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ws.CloseNow()
	for _, message := range []string{
		`{"type":"JOIN_ROOM","meta":{"correlationId":"1"},"payload":{"room":"go"}}`,
		`{"type":"ROOM_MESSAGE","payload":{"room":"go","text":"hello"}}`,
		`{"type":"ROOM_MESSAGE","payload":{"room":"go","text":""}}`,
	} {
		if err := ws.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
			log.Fatal(err)
		}
		var answer struct {
			Type    string         `json:"type"`
			Payload map[string]any `json:"payload"`
		}
		if err := wsjson.Read(ctx, ws, &answer); err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer.Type, answer.Payload)
	}
	// Output:
	// ROOM_JOINED map[room:go]
	// ROOM_MESSAGE map[room:go text:hello]
	// ERROR map[code:INVALID_ARGUMENT details:map[field:text reason:must not be empty] message:text must not be empty retryable:false]
}
