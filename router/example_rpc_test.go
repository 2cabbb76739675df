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

// Divide is a call.
type Divide struct {
	A int `json:"a"`
	B int `json:"b"`
}

func (Divide) MessageType() string { return "DIVIDE" }

// Quotient is the reply to Divide.
type Quotient struct {
	Value int `json:"value"`
}

func (Quotient) MessageType() string { return "QUOTIENT" }

// Every call gets one answer, the reply or an error, with the correlation ID of the call.
func ExampleRPC() {
	r := router.New(nil)
	router.RPC(r, func(_ *router.Context, m Divide) (Quotient, error) {
		if m.B == 0 {
			return Quotient{}, errors.Errorf(errors.InvalidArgument, "division by zero")
		}
		return Quotient{Value: m.A / m.B}, nil
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
	for id, call := range []Divide{{A: 12, B: 4}, {A: 1, B: 0}} {
		if err := wsjson.Write(ctx, ws, map[string]any{
			"type":    call.MessageType(),
			"meta":    map[string]any{"correlationId": fmt.Sprint(id)},
			"payload": call,
		}); err != nil {
			log.Fatal(err)
		}
		var answer struct {
			Type string `json:"type"`
			Meta struct {
				CorrelationID string `json:"correlationId"`
			} `json:"meta"`
			Payload map[string]any `json:"payload"`
		}
		if err := wsjson.Read(ctx, ws, &answer); err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer.Meta.CorrelationID, answer.Type, answer.Payload)
	}
	// Output:
	// 0 QUOTIENT map[value:3]
	// 1 RPC_ERROR map[code:INVALID_ARGUMENT message:division by zero retryable:false]
}
