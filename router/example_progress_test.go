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

// ResizeImages is a call that takes some time.
type ResizeImages struct {
	Images int `json:"images"`
}

func (ResizeImages) MessageType() string { return "RESIZE_IMAGES" }

// ImagesResized is the reply to ResizeImages.
type ImagesResized struct {
	Images int `json:"images"`
}

func (ImagesResized) MessageType() string { return "IMAGES_RESIZED" }

// ResizeProgress is sent while the call runs. It needs no message type.
type ResizeProgress struct {
	Done  int `json:"done"`
	Total int `json:"total"`
}

// A call may report its progress any number of times before its reply.
func ExampleContext_Progress() {
	r := router.New(nil)
	router.RPC(r, func(ctx *router.Context, m ResizeImages) (ImagesResized, error) {
		for done := range m.Images {
			if err := ctx.Err(); err != nil { // the connection has ended, or the deadline has passed
				return ImagesResized{}, err
			}
			// A program resizes one image here.
			if err := ctx.Progress(ResizeProgress{Done: done + 1, Total: m.Images}); err != nil {
				return ImagesResized{}, err
			}
		}
		return ImagesResized(m), nil
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
	resize := ResizeImages{Images: 2}
	if err := wsjson.Write(ctx, ws, map[string]any{
		"type":    resize.MessageType(),
		"meta":    map[string]any{"correlationId": "1"},
		"payload": resize,
	}); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		var message struct {
			Type    string         `json:"type"`
			Payload map[string]any `json:"payload"`
		}
		if err := wsjson.Read(ctx, ws, &message); err != nil {
			log.Fatal(err)
		}
		fmt.Println(message.Type, message.Payload)
	}
	// Output:
	// $ws:rpc-progress map[done:1 total:2]
	// $ws:rpc-progress map[done:2 total:2]
	// IMAGES_RESIZED map[images:2]
}
