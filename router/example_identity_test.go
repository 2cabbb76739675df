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

// LogIn is a call.
type LogIn struct {
	Name     string `json:"name"`
	Password string `json:"password"`
}

func (LogIn) MessageType() string { return "LOG_IN" }

// LoggedIn is the reply to LogIn.
type LoggedIn struct {
	UserID string `json:"userId"`
}

func (LoggedIn) MessageType() string { return "LOGGED_IN" }

// Clients connect anonymously and log in with a message. The route is serial, so messages that
// follow the login wait for it.
func ExampleConn_SetIdentity() {
	r := router.New(nil)
	router.RPC(r, func(ctx *router.Context, m LogIn) (LoggedIn, error) {
		if m.Name != "Ann" || m.Password != "secret" { // a program compares hashes
			return LoggedIn{}, errors.Errorf(errors.Unauthenticated, "wrong name or password")
		}
		id := router.Identity{UserID: "ann", ExpiresAt: time.Now().Add(8 * time.Hour)}
		if err := ctx.Conn().SetIdentity(id); err != nil {
			return LoggedIn{}, err // too many connections of the user, for example
		}
		return LoggedIn{UserID: ctx.Identity().UserID}, nil
	}).Serial()
	server := httptest.NewServer(r)
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, server.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ws.CloseNow()
	if err := wsjson.Write(ctx, ws, map[string]any{"type": "LOG_IN", "payload": LogIn{"Ann", "secret"}}); err != nil {
		log.Fatal(err)
	}
	var reply struct {
		Payload LoggedIn `json:"payload"`
	}
	if err := wsjson.Read(ctx, ws, &reply); err != nil {
		log.Fatal(err)
	}
	n, _ := r.SendToUser("", "ann", User{ID: "ann"}) // fails only with a broker
	fmt.Println(reply.Payload.UserID, "has", n, "connection")
	// Output: ann has 1 connection
}
