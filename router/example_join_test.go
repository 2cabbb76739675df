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

// OpenDocument joins the readers of a document.
type OpenDocument struct {
	Document string `json:"document"`
}

func (OpenDocument) MessageType() string { return "OPEN_DOCUMENT" }

// Readers is the reply to OpenDocument.
type Readers struct {
	Users []string `json:"users"`
}

func (Readers) MessageType() string { return "READERS" }

// Join subscribes a connection to a topic and lists it as present. OnPresence is called when a
// member joins or leaves, on this node or another one.
func ExamplePresent() {
	presence := make(chan router.PresenceEvent, 10)
	r := router.New(&router.Options{
		Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: router.Token(req)}, nil // a program verifies the token
		},
		OnPresence: func(e router.PresenceEvent) { presence <- e },
	})
	router.RPC(r, func(ctx *router.Context, m OpenDocument) (Readers, error) {
		topic := "document/" + m.Document
		if err := ctx.Subscribe(topic, router.Present("reading")); err != nil {
			return Readers{}, err
		}
		var readers Readers
		for _, member := range r.Presence(topic) {
			readers.Users = append(readers.Users, member.UserID)
		}
		return readers, nil
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
	open := OpenDocument{Document: "plan"}
	if err := wsjson.Write(ctx, ws, map[string]any{"type": open.MessageType(), "payload": open}); err != nil {
		log.Fatal(err)
	}
	var reply struct {
		Payload Readers `json:"payload"`
	}
	if err := wsjson.Read(ctx, ws, &reply); err != nil {
		log.Fatal(err)
	}
	fmt.Println("readers:", reply.Payload.Users)
	if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		e := <-presence
		fmt.Println(e.Topic, e.Member.UserID, e.Member.Info, "joined:", e.Joined)
	}
	// Output:
	// readers: [ann]
	// document/plan ann reading joined: true
	// document/plan ann reading joined: false
}
