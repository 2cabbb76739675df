//go:build !js

package fallback_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/client/fallback"
	"github.com/penstock-go/penstock/router"
)

// The proxy of this program's network answers WebSocket handshakes with 403.
func ExampleNew() {
	r := router.New(nil)
	router.RPC(r, func(ctx *router.Context, m add) (sum, error) {
		return sum{m.A + m.B, string(ctx.Conn().Transport())}, nil
	})
	mux := http.NewServeMux()
	mux.Handle("/ws/http", r.HTTPFallback(nil))
	mux.Handle("/ws", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden) // instead of r
	}))
	server := httptest.NewServer(mux)
	defer server.Close()

	transport := fallback.New(server.URL+"/ws/http", &fallback.Options{
		OnTransport: func(t fallback.Transport, cause error) { fmt.Println(t, "because", cause) },
	})
	c := client.New(strings.Replace(server.URL, "http", "ws", 1)+"/ws", &client.Options{
		HTTPClient: &http.Client{Transport: transport},
		Resume:     true,
	})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	reply, err := client.Call[sum](ctx, c, add{1, 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(reply.Sum, reply.Transport)
	if err := c.Close(ctx); err != nil {
		fmt.Println(err)
	}
	if err := r.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// http-stream because the response is 403 Forbidden
	// 3 http-stream
}
