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

// A client whose connection was lost gets back what a handler has subscribed it to.
func ExampleResumeOptions() {
	r := router.New(&router.Options{
		Resume: router.ResumeOptions{Within: 2 * time.Minute, OnResume: func(_ *router.Context, s router.ResumedSession) error {
			fmt.Println("resumes a session with", s.Topics)
			return nil
		}},
		OnOpen: func(_ context.Context, c *router.Conn) error { return c.Subscribe("lobby") },
	})
	server := httptest.NewServer(r)
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	// call sends a message of the protocol on a new connection, and returns the token in the answer.
	call := func(typ string, payload any) (token string) {
		ws, _, err := websocket.Dial(ctx, server.URL, nil)
		if err != nil {
			log.Fatal(err)
		}
		defer ws.CloseNow()
		if err := wsjson.Write(ctx, ws, map[string]any{"type": typ, "payload": payload}); err != nil {
			log.Fatal(err)
		}
		var answer struct {
			Type    string
			Payload struct {
				Session struct{ Token string }
				Topics  []struct{ Topic string }
			}
		}
		if err := wsjson.Read(ctx, ws, &answer); err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer.Type, answer.Payload.Topics)
		return answer.Payload.Session.Token
	}
	token := call("$ws:hello", map[string]any{"session": true})
	call("$ws:resume", map[string]any{"token": token})

	// Output:
	// $ws:welcome []
	// resumes a session with [lobby]
	// $ws:resumed [{lobby}]
}
