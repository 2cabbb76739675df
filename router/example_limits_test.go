package router_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/penstock-go/penstock/router"
)

// AddComment is an event whose size is limited.
type AddComment struct {
	Text string `json:"text"`
}

func (AddComment) MessageType() string { return "ADD_COMMENT" }

// Limits that are exceeded are answered, and reported to OnLimitExceeded. Package
// middleware/ratelimit adds rate limits.
func ExampleLimits() {
	reports := make(chan router.LimitExceeded, 10)
	r := router.New(&router.Options{
		Limits: router.Limits{
			MaxMessageBytes: 16 << 10, // for messages without a limit of their own
			Concurrency:     8,        // calls of one connection that run at the same time
			ConnsPerIP:      100,
		},
		OnLimitExceeded: func(l router.LimitExceeded) { reports <- l },
	})
	router.On(r, func(*router.Context, AddComment) error { return nil }).MaxMessageBytes(1000)
	server := httptest.NewServer(r)
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, server.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ws.CloseNow()
	comment := AddComment{Text: strings.Repeat("x", 2000)}
	if err := wsjson.Write(ctx, ws, map[string]any{"type": comment.MessageType(), "payload": comment}); err != nil {
		log.Fatal(err)
	}
	var answer struct {
		Payload struct {
			Code    string         `json:"code"`
			Details map[string]any `json:"details"`
		} `json:"payload"`
	}
	if err := wsjson.Read(ctx, ws, &answer); err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Payload.Code, answer.Payload.Details)
	report := <-reports
	fmt.Println(report.Kind, report.Type, report.Observed, "of", report.Limit)
	// Output:
	// RESOURCE_EXHAUSTED map[kind:payload limit:1000 observed:2045]
	// payload ADD_COMMENT 2045 of 1000
}
