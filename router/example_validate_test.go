package router_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// SignUp creates an account.
type SignUp struct {
	Name string `json:"name"`
	Age  int    `json:"age"`
}

func (SignUp) MessageType() string { return "SIGN_UP" }

// Validate returns an error for every invalid field. The client receives them together.
func (m SignUp) Validate() error {
	var name, age error
	if m.Name == "" {
		name = errors.InvalidField("name", "must not be empty")
	}
	if m.Age < 18 {
		age = errors.InvalidField("age", "must be at least 18")
	}
	return errors.Join(name, age) // nil if both are nil
}

func ExampleMessage_validate() {
	r := router.New(nil)
	router.On(r, func(*router.Context, SignUp) error { return nil })
	server := httptest.NewServer(r)
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, server.URL, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ws.CloseNow()
	_ = ws.Write(ctx, websocket.MessageText, []byte(`{"type":"SIGN_UP","payload":{"name":"","age":7}}`))
	_, answer, err := ws.Read(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, payload, _ := strings.Cut(string(answer), `"payload":`)
	fmt.Println(payload)
	// Output: {"code":"INVALID_ARGUMENT","message":"name must not be empty; age must be at least 18","details":{"field":"name","reason":"must not be empty","fields":[{"field":"name","reason":"must not be empty"},{"field":"age","reason":"must be at least 18"}]},"retryable":false}}
}
