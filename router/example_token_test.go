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

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// GetUser is a call.
type GetUser struct{}

func (GetUser) MessageType() string { return "GET_USER" }

// User is the reply to GetUser.
type User struct {
	ID string `json:"id"`
}

func (User) MessageType() string { return "USER" }

// authenticate looks up the user of a token. A program verifies a JWT or asks its session store.
func authenticate(req *http.Request) (router.Identity, error) {
	users := map[string]string{"secret-of-ann": "ann"}
	user, ok := users[router.Token(req)]
	if !ok {
		return router.Identity{}, errors.Errorf(errors.Unauthenticated, "the token is missing or invalid")
	}
	return router.Identity{UserID: user}, nil
}

// Authentication by a token in the query of the URL: a rejected handshake is answered with an
// HTTP status, and handlers know the identity of an accepted one.
func ExampleToken() {
	r := router.New(&router.Options{Authenticate: authenticate})
	router.RPC(r, func(ctx *router.Context, _ GetUser) (User, error) {
		return User{ID: ctx.Identity().UserID}, nil
	})
	server := httptest.NewServer(r)
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, resp, err := websocket.Dial(ctx, server.URL+"?access_token=wrong", nil)
	if err == nil {
		log.Fatal("an invalid token was accepted")
	}
	fmt.Println(resp.Status)

	ws, _, err := websocket.Dial(ctx, server.URL+"?access_token=secret-of-ann", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ws.CloseNow()
	if err := wsjson.Write(ctx, ws, map[string]any{"type": "GET_USER", "payload": GetUser{}}); err != nil {
		log.Fatal(err)
	}
	var reply struct {
		Payload User `json:"payload"`
	}
	if err := wsjson.Read(ctx, ws, &reply); err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Payload.ID)
	// Output:
	// 401 Unauthorized
	// ann
}
