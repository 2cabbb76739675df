package router_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// Clients subscribe to declared topics without a handler, if Authorize permits it.
func ExampleTopic() {
	rooms := map[string][]string{"ann": {"go"}} // by user
	r := router.New(&router.Options{
		Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: router.Token(req)}, nil // a program verifies the token
		},
	})
	router.Topic(r, "room/{id}", &router.TopicOptions{
		Presence: true,
		Authorize: func(ctx *router.Context, topic router.TopicMatch) error {
			if !slices.Contains(rooms[ctx.Identity().UserID], topic.Value("id")) {
				return errors.Errorf(errors.PermissionDenied, "you are not a member of %s", topic)
			}
			return nil
		},
	})
	server := httptest.NewServer(r)
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, server.URL+"?access_token=ann", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ws.CloseNow()
	for _, topic := range []string{"room/go", "room/rust", "news"} {
		if err := wsjson.Write(ctx, ws, map[string]any{
			"type":    "$ws:subscribe",
			"payload": map[string]any{"topic": topic, "presence": true},
		}); err != nil {
			log.Fatal(err)
		}
		var answer struct {
			Type    string `json:"type"`
			Payload struct {
				Code    errors.Code     `json:"code"`
				Message string          `json:"message"`
				Members []router.Member `json:"members"`
			} `json:"payload"`
		}
		if err := wsjson.Read(ctx, ws, &answer); err != nil {
			log.Fatal(err)
		}
		fmt.Println(topic, answer.Type, answer.Payload.Code, answer.Payload.Message, len(answer.Payload.Members))
	}
	// Output:
	// room/go $ws:subscribed   1
	// room/rust ERROR PERMISSION_DENIED you are not a member of room/rust 0
	// news ERROR NOT_FOUND topic "news" does not exist 0
}
