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

// DeletePost is an event that requires a user.
type DeletePost struct {
	ID string `json:"id"`
}

func (DeletePost) MessageType() string { return "DELETE_POST" }

// An ingress function decides by the type, the size and the sender of a message, before the
// payload is read: here it rejects all messages of anonymous connections.
func ExampleRouter_UseIngress() {
	r := router.New(nil)
	r.UseIngress(func(_ context.Context, in router.IngressContext) error {
		if in.Identity.UserID == "" {
			return errors.Errorf(errors.PermissionDenied, "log in before you send %s", in.Type)
		}
		return nil
	})
	router.On(r, func(_ *router.Context, m DeletePost) error {
		fmt.Println("delete", m.ID)
		return nil
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
	deletePost := DeletePost{ID: "7"}
	if err := wsjson.Write(ctx, ws, map[string]any{"type": deletePost.MessageType(), "payload": deletePost}); err != nil {
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
	// Output:
	// ERROR map[code:PERMISSION_DENIED message:log in before you send DELETE_POST retryable:false]
}
