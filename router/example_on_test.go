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

// MoveTo is an event: a message without a reply.
type MoveTo struct {
	X int `json:"x"`
	Y int `json:"y"`
}

func (MoveTo) MessageType() string { return "MOVE_TO" }

// Moved is an event from the server.
type Moved struct {
	X int `json:"x"`
	Y int `json:"y"`
}

func (Moved) MessageType() string { return "MOVED" }

// A handler of events may send messages, and answers only errors.
func ExampleOn() {
	r := router.New(nil)
	router.On(r, func(ctx *router.Context, m MoveTo) error {
		if m.X < 0 || m.Y < 0 {
			return errors.Errorf(errors.InvalidArgument, "%d, %d is outside the map", m.X, m.Y)
		}
		return ctx.Send(Moved(m))
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
	for _, m := range []MoveTo{{X: 3, Y: 4}, {X: -1, Y: 0}} {
		if err := wsjson.Write(ctx, ws, map[string]any{"type": m.MessageType(), "payload": m}); err != nil {
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
	// MOVED map[x:3 y:4]
	// ERROR map[code:INVALID_ARGUMENT message:-1, 0 is outside the map retryable:false]
}
