package router_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/router"
)

// A user whose connection breaks stays present, and others do not notice that the client connects again.
func ExampleTopicOptions_presenceGrace() {
	changes, closed := make(chan router.PresenceEvent, 8), make(chan struct{}, 8)
	r := router.New(&router.Options{
		Authenticate: func(r *http.Request) (router.Identity, error) {
			return router.Identity{UserID: router.Token(r)}, nil // after the token has been verified
		},
		OnOpen:     func(_ context.Context, c *router.Conn) error { return c.Subscribe("room/go", router.Present("")) },
		OnClose:    func(*router.Conn, router.CloseError) { closed <- struct{}{} },
		OnPresence: func(e router.PresenceEvent) { changes <- e },
	})
	router.Topic(r, "room/{id}", &router.TopicOptions{PresenceGrace: 30 * time.Second})
	server := httptest.NewServer(r)
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	connect := func() *websocket.Conn {
		ws, _, err := websocket.Dial(ctx, server.URL+"?access_token=ann", nil)
		if err != nil {
			log.Fatal(err)
		}
		return ws
	}
	first := connect()
	e := <-changes
	fmt.Println(e.Member.UserID, "joined:", e.Joined)

	_ = first.CloseNow() // the network fails
	<-closed
	fmt.Println("members:", len(r.Presence("room/go")))

	second := connect()
	_ = second.Close(websocket.StatusNormalClosure, "")
	e = <-changes
	fmt.Println(e.Member.UserID, "joined:", e.Joined)

	// Output:
	// ann joined: true
	// members: 1
	// ann joined: false
}
