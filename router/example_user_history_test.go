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

	"github.com/penstock-go/penstock/router"
)

// Alert is sent to a user.
type Alert struct {
	Text string `json:"text"`
}

// MessageType returns the name in the protocol.
func (Alert) MessageType() string { return "ALERT" }

// A client whose connection was lost receives what was sent to its user meanwhile. The clients of
// Penstock send and receive the messages of the protocol that are below.
func ExampleOptions_userHistory() {
	r := router.New(&router.Options{
		Authenticate: func(*http.Request) (router.Identity, error) { return router.Identity{UserID: "ann"}, nil },
		Resume:       router.ResumeOptions{Within: 2 * time.Minute},
		UserHistory:  router.History{Messages: 100, Age: time.Hour},
	})
	server := httptest.NewServer(r)
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	type payload struct {
		Session struct{ Token string }
		Epoch   string
		Offset  int
		Text    string
	}
	// connect sends a message on a new connection, and returns the payloads of the two that follow.
	connect := func(message map[string]any) (received [2]payload) {
		ws, _, err := websocket.Dial(ctx, server.URL, nil)
		if err != nil {
			log.Fatal(err)
		}
		defer ws.CloseNow()
		if err := wsjson.Write(ctx, ws, message); err != nil {
			log.Fatal(err)
		}
		for i := range received {
			var m struct {
				Type    string
				Payload payload
			}
			if err := wsjson.Read(ctx, ws, &m); err != nil {
				log.Fatal(err)
			}
			fmt.Println(m.Type)
			received[i] = m.Payload
		}
		return received
	}
	got := connect(map[string]any{"type": "$ws:hello", "payload": map[string]any{"session": true}})
	if _, err := r.SendToUser("", "ann", Alert{"your order has been shipped"}); err != nil {
		log.Fatal(err)
	}
	position := map[string]any{"topic": "", "epoch": got[1].Epoch, "offset": got[1].Offset}
	got = connect(map[string]any{"type": "$ws:resume", "payload": map[string]any{
		"token": got[0].Session.Token, "topics": []any{position},
	}})
	fmt.Println(got[0].Text + got[1].Text) // the message may arrive before the answer

	// Unordered output:
	// $ws:welcome
	// $ws:subscribed
	// $ws:resumed
	// ALERT
	// your order has been shipped
}
