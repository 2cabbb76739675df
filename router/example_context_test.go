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

type requestID struct{}

type Report struct {
	Year int `json:"year"`
}

type ReportReady struct {
	Pages int `json:"pages"`
}

func (Report) MessageType() string      { return "REPORT" }
func (ReportReady) MessageType() string { return "REPORT_READY" }

// A middleware gives handlers less time than the call has, and a value, as middlewares of net/http do.
func ExampleContext_WithContext() {
	r := router.New(nil)
	r.Use(func(next router.Handler) router.Handler {
		return func(ctx *router.Context) error {
			derived, cancel := context.WithTimeout(context.WithValue(ctx, requestID{}, "r-1"), 5*time.Second)
			defer cancel()
			return next(ctx.WithContext(derived))
		}
	})
	router.RPC(r, func(ctx *router.Context, _ Report) (ReportReady, error) {
		deadline, _ := ctx.Deadline() // also that of databases which receive ctx
		fmt.Println(ctx.Value(requestID{}), time.Until(deadline) <= 5*time.Second)
		return ReportReady{12}, nil
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
	if err := wsjson.Write(ctx, ws, map[string]any{"type": "REPORT", "payload": Report{2026}}); err != nil {
		log.Fatal(err)
	}
	var reply struct{ Payload ReportReady }
	if err := wsjson.Read(ctx, ws, &reply); err != nil {
		log.Fatal(err)
	}
	fmt.Println(reply.Payload.Pages)
	// Output:
	// r-1 true
	// 12
}
