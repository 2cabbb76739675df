package router_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// serveUntil serves connections until ctx is done. It then lets running handlers finish, closes
// all connections, and returns after 30 seconds at the latest.
func serveUntil(ctx context.Context, listener net.Listener, r *router.Router) error {
	mux := http.NewServeMux()
	mux.Handle("/ws", r)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	timeout, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	// http.Server.Shutdown does not close WebSocket connections, so the router is shut down first.
	return errors.Join(r.Shutdown(timeout), server.Shutdown(timeout))
}

// Graceful shutdown of an http.Server with a router, on SIGINT or SIGTERM.
func ExampleRouter_Shutdown() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- serveUntil(ctx, listener, router.New(nil)) }()

	ws, _, err := websocket.Dial(context.Background(), "ws://"+listener.Addr().String()+"/ws", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer ws.CloseNow()
	stop() // a signal has the same effect on ctx

	_, _, err = ws.Read(context.Background())
	fmt.Println(websocket.CloseStatus(err))
	fmt.Println(<-done)
	// Output:
	// StatusServiceRestart
	// <nil>
}
