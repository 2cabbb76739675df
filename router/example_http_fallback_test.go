package router_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/penstock-go/penstock/router"
)

// A server for clients whose network may block WebSocket. Package client/fallback and the module
// penstock-client/fallback are such clients.
func ExampleRouter_HTTPFallback() {
	r := router.New(nil)
	mux := http.NewServeMux()
	mux.Handle("/ws", r)
	mux.Handle("/ws/http", r.HTTPFallback(nil))
	server := httptest.NewServer(mux)
	defer server.Close()

	check, err := http.Get(server.URL + "/ws/http")
	if err != nil {
		panic(err)
	}
	_ = check.Body.Close()
	fmt.Println(check.Status, check.Header.Get("Penstock-Fallback"))

	response, err := http.Post(server.URL+"/ws/http?open", "text/plain", strings.NewReader(`{"mode":"stream"}`))
	if err != nil {
		panic(err)
	}
	defer func() { _ = response.Body.Close() }()
	for events := bufio.NewScanner(response.Body); events.Scan() && events.Text() != "event: open"; {
		continue // a comment
	}
	fmt.Println(response.Header.Get("Content-Type"))
	for c := range r.Conns() {
		fmt.Println(c.Transport())
	}
	_ = r.Shutdown(context.Background()) // ends the response, for which the server would wait
	// Output:
	// 204 No Content 1
	// text/event-stream
	// http-stream
}
