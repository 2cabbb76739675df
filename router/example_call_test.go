package router_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// DeleteRoom is a call of the client.
type DeleteRoom struct {
	Room string `json:"room"`
}

func (DeleteRoom) MessageType() string { return "DELETE_ROOM" }

// RoomDeleted is the reply to DeleteRoom.
type RoomDeleted struct{}

func (RoomDeleted) MessageType() string { return "ROOM_DELETED" }

// AskUser is a call of the server.
type AskUser struct {
	Question string `json:"question"`
}

func (AskUser) MessageType() string { return "ASK_USER" }

// UserAnswer is the reply to AskUser.
type UserAnswer struct {
	Yes bool `json:"yes"`
}

func (UserAnswer) MessageType() string { return "USER_ANSWER" }

// The server asks the user for confirmation before it deletes a room.
func ExampleCall() {
	r := router.New(nil)
	router.RPC(r, func(ctx *router.Context, m DeleteRoom) (RoomDeleted, error) {
		answer, err := router.Call[UserAnswer](ctx, ctx.Conn(), AskUser{Question: "Delete " + m.Room + "?"})
		if err != nil {
			return RoomDeleted{}, err
		}
		if !answer.Yes {
			return RoomDeleted{}, errors.Errorf(errors.Canceled, "not confirmed")
		}
		return RoomDeleted{}, nil
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
	send := func(typ, correlationID string, payload any) {
		if err := wsjson.Write(ctx, ws, map[string]any{
			"type": typ, "meta": map[string]any{"correlationId": correlationID}, "payload": payload,
		}); err != nil {
			log.Fatal(err)
		}
	}
	send("DELETE_ROOM", "1", DeleteRoom{Room: "go"})
	for {
		var message struct {
			Type string `json:"type"`
			Meta struct {
				CorrelationID string `json:"correlationId"`
			} `json:"meta"`
			Payload map[string]any `json:"payload"`
		}
		if err := wsjson.Read(ctx, ws, &message); err != nil {
			log.Fatal(err)
		}
		fmt.Println(message.Meta.CorrelationID, message.Type, message.Payload)
		if message.Type != "ASK_USER" {
			return
		}
		send("USER_ANSWER", message.Meta.CorrelationID, UserAnswer{Yes: true})
	}
	// Output:
	// $ws:1 ASK_USER map[question:Delete go?]
	// 1 ROOM_DELETED map[]
}
