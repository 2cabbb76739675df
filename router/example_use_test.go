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

// GetTime is a call.
type GetTime struct{}

func (GetTime) MessageType() string { return "GET_TIME" }

// CurrentTime is the reply to GetTime.
type CurrentTime struct {
	Hour int `json:"hour"`
}

func (CurrentTime) MessageType() string { return "CURRENT_TIME" }

// trace returns a middleware that prints when a message enters and leaves it.
func trace(name string) router.Middleware {
	return func(next router.Handler) router.Handler {
		return func(ctx *router.Context) error {
			fmt.Println("enter", name, ctx.Type())
			err := next(ctx)
			fmt.Println("leave", name, err)
			return err
		}
	}
}

// The first middleware of the router is the outermost; the middleware of a route is the
// innermost.
func ExampleRouter_Use() {
	r := router.New(nil)
	r.Use(trace("outer"), trace("inner"))
	router.RPC(r, func(*router.Context, GetTime) (CurrentTime, error) {
		return CurrentTime{Hour: 12}, nil
	}).Use(trace("route"))
	server := httptest.NewServer(r)
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, server.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ws.CloseNow()
	if err := wsjson.Write(ctx, ws, map[string]any{"type": "GET_TIME", "payload": GetTime{}}); err != nil {
		log.Fatal(err)
	}
	var reply struct {
		Payload CurrentTime `json:"payload"`
	}
	if err := wsjson.Read(ctx, ws, &reply); err != nil {
		log.Fatal(err)
	}
	fmt.Println("hour", reply.Payload.Hour)
	// Output:
	// enter outer GET_TIME
	// enter inner GET_TIME
	// enter route GET_TIME
	// leave route <nil>
	// leave inner <nil>
	// leave outer <nil>
	// hour 12
}
