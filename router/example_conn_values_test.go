package router_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/penstock-go/penstock/router"
)

// A Player is the state of one connection.
type Player struct {
	Region string
	Count  atomic.Int64 // handlers of calls run concurrently
}

// playerKey is the key of the Player: as only this package has the type, no other can collide.
type playerKey struct{}

// PlayerOf returns the state that OnOpen has stored. It is the typed accessor that the rest of the
// program uses.
func PlayerOf(c *router.Conn) *Player { return c.Get(playerKey{}).(*Player) }

// Hit is an event.
type Hit struct{}

func (Hit) MessageType() string { return "HIT" }

// HitsCounted is sent for each Hit.
type HitsCounted struct {
	Region string `json:"region"`
	Count  int64  `json:"count"`
}

func (HitsCounted) MessageType() string { return "HITS_COUNTED" }

// State of a connection, stored when it opens and read by handlers through a typed function.
func ExampleConn_Set() {
	r := router.New(&router.Options{
		ConnContext: func(req *http.Request) context.Context { // keep a value of the request
			return context.WithValue(context.Background(), regionKey{}, req.Header.Get("X-Region"))
		},
		OnOpen: func(ctx context.Context, c *router.Conn) error {
			region, _ := ctx.Value(regionKey{}).(string)
			c.Set(playerKey{}, &Player{Region: region})
			return nil
		},
	})
	router.On(r, func(ctx *router.Context, _ Hit) error {
		player := PlayerOf(ctx.Conn())
		return ctx.Send(HitsCounted{player.Region, player.Count.Add(1)})
	})
	server := httptest.NewServer(r)
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, server.URL, &websocket.DialOptions{HTTPHeader: http.Header{"X-Region": {"eu"}}})
	if err != nil {
		log.Fatal(err)
	}
	defer ws.CloseNow()
	for range 2 {
		if err := wsjson.Write(ctx, ws, map[string]any{"type": "HIT"}); err != nil {
			log.Fatal(err)
		}
		var counted struct {
			Payload HitsCounted `json:"payload"`
		}
		if err := wsjson.Read(ctx, ws, &counted); err != nil {
			log.Fatal(err)
		}
		fmt.Println(counted.Payload.Region, counted.Payload.Count)
	}
	// Output:
	// eu 1
	// eu 2
}

// regionKey is the key of a value of ConnContext.
type regionKey struct{}
