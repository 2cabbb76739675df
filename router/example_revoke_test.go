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

// A moderator removes a user from all rooms, on all nodes.
func ExampleRouter_Revoke() {
	opened := make(chan struct{})
	r := router.New(&router.Options{
		Authenticate: func(*http.Request) (router.Identity, error) {
			return router.Identity{TenantID: "acme", UserID: "ann"}, nil // a program verifies a token
		},
		OnOpen: func(_ context.Context, c *router.Conn) error {
			defer close(opened)
			return c.Subscribe("room/go")
		},
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
	<-opened

	// A program first changes what Authorize and handlers decide by.
	if err := r.Revoke(ctx, "acme", "ann", "room/{name}"); err != nil {
		log.Print(err) // it may not have taken effect on other nodes: try again
	}
	for c := range r.Conns() {
		fmt.Println(c.Identity().UserID, c.Subscribed("room/go"))
	}

	// Output:
	// ann false
}
