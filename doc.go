// Package penstock is a typed WebSocket router for Go with exact rate limiting,
// presence, and horizontal scaling through Redis or PostgreSQL. The code is in the
// packages below. In this program, every client joins a lobby, and each IP address may
// send 10 messages per second, with bursts of 20:
//
//	package main
//
//	import (
//		"context"
//		"log"
//		"net/http"
//		"time"
//
//		"github.com/penstock-go/penstock/adapters/memory"
//		"github.com/penstock-go/penstock/limit"
//		"github.com/penstock-go/penstock/middleware/ratelimit"
//		"github.com/penstock-go/penstock/router"
//	)
//
//	type Say struct {
//		Text string `json:"text"`
//	}
//
//	func (Say) MessageType() string { return "SAY" }
//
//	func main() {
//		r := router.New(&router.Options{OnOpen: func(_ context.Context, c *router.Conn) error {
//			return c.Subscribe("lobby")
//		}})
//		limiter := memory.NewLimiter(limit.PerSecond(10).Burst(20))
//		perAddress := ratelimit.Options{Key: ratelimit.KeyPerIP}
//		r.UseIngress(ratelimit.New(limiter, &perAddress)) // runs before the payload is read
//		router.On(r, func(ctx *router.Context, m Say) error {
//			return ctx.Publish("lobby", m)
//		})
//
//		http.Handle("/ws", r)
//		server := &http.Server{Addr: ":8080", ReadHeaderTimeout: 5 * time.Second}
//		log.Fatal(server.ListenAndServe())
//	}
//
// Start with package router, which defines messages, handlers and connections,
// and package middleware/ratelimit, which limits messages. Packages limit,
// adapters/memory and middleware/httplimit, which limits HTTP requests, work
// without the router, too. Package adapters/redis connects several nodes, and
// package adapters/durableobject limits in several regions. The folder docs of
// the repository has the protocol and guides for authentication, graceful
// shutdown, reverse proxies and more.
package penstock
