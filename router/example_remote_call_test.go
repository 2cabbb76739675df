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

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/router"
)

// AllowLogin is a call to the devices of a user.
type AllowLogin struct {
	From string `json:"from"`
}

func (AllowLogin) MessageType() string { return "ALLOW_LOGIN" }

// LoginAllowed is the reply to AllowLogin.
type LoginAllowed struct {
	Allowed bool `json:"allowed"`
}

func (LoginAllowed) MessageType() string { return "LOGIN_ALLOWED" }

// twoNodes starts two nodes, of which clients connect to the second one.
func twoNodes() (one *router.Router, server *httptest.Server, opened <-chan struct{}) {
	b, conns := memory.NewBroker(), make(chan struct{}, 1)
	two := router.New(&router.Options{
		Broker: b,
		Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: req.URL.Query().Get("user")}, nil
		},
		OnOpen: func(context.Context, *router.Conn) error { conns <- struct{}{}; return nil },
	})
	return router.New(&router.Options{Broker: b}), httptest.NewServer(two), conns
}

// connectDevice connects a client that allows every login.
func connectDevice(ctx context.Context, url string, opened <-chan struct{}) {
	ws, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		log.Fatal(err)
	}
	<-opened
	go func() {
		var call struct {
			Meta struct {
				CorrelationID string `json:"correlationId"`
			} `json:"meta"`
		}
		for wsjson.Read(ctx, ws, &call) == nil {
			_ = wsjson.Write(ctx, ws, map[string]any{"type": "LOGIN_ALLOWED", "meta": call.Meta, "payload": LoginAllowed{Allowed: true}})
		}
	}()
}

// The first device that answers decides; the others receive an abort.
func ExampleCallUser() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	one, server, opened := twoNodes()
	defer server.Close()
	connectDevice(ctx, server.URL+"?user=ann", opened)

	for reply := range router.CallUser[LoginAllowed](ctx, one, "", "ann", AllowLogin{From: "192.0.2.1"}) {
		if reply.Err != nil {
			log.Print(reply.Err) // this device, or a node, has not answered
			continue
		}
		fmt.Println("allowed:", reply.Reply.Allowed)
		break
	}
	// Output: allowed: true
}

// A node lists the connections of a user, of which one is connected to another node, and calls it.
func ExampleCallConn() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	one, server, opened := twoNodes()
	defer server.Close()
	connectDevice(ctx, server.URL+"?user=ann", opened)

	conns, err := one.UserConns(ctx, "", "ann")
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range conns.Conns {
		reply, err := router.CallConn[LoginAllowed](ctx, one, c.ConnID, AllowLogin{From: "192.0.2.1"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("allowed by a client at", c.IP, reply.Allowed)
	}
	// Output: allowed by a client at 127.0.0.1 true
}
