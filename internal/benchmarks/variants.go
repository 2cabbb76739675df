package main

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/router"
)

// The variants are servers of Penstock for suites that measure one feature of it. Servers read the
// address of Redis and the number of members of a room from their environment.
const (
	redisAddr = "BENCHMARKS_REDIS"
	roomSize  = "BENCHMARKS_ROOM_SIZE"
)

var variants = []contender{
	{name: "pings", request: say, serve: servePings},
	{name: "one topic", request: say, serve: func() (http.Handler, func(int)) {
		return serveRooms(func(*router.Conn, string) error { return nil })
	}},
	{name: "room", request: say, serve: func() (http.Handler, func(int)) {
		return serveRooms(func(c *router.Conn, topic string) error { return c.Subscribe(topic) })
	}},
	{name: "member", request: say, serve: func() (http.Handler, func(int)) {
		return serveRooms(func(c *router.Conn, topic string) error { return c.Subscribe(topic, router.Present("Ann")) })
	}},
	{name: "no session", request: say, serve: serveSessions},
	{name: "session", request: greet, serve: serveSessions},
	{name: "fallback", request: say, serve: serveFallback},
	{name: "penstock-window", request: say, serve: servePenstock},
}

func variant(name string) contender {
	return find(slices.Concat(variants, memoryVariants, stormVariants, clusterVariants, clientVariants), name)
}

// pingInterval is how often the variant pings sends a ping to each connection.
const pingInterval = time.Second

func servePings() (http.Handler, func(int)) {
	return serveOptions(&router.Options{Timeouts: router.Timeouts{Ping: pingInterval}})
}

// serveRooms serves connections that all subscribe to one topic. Each enters a room.
func serveRooms(enter func(c *router.Conn, topic string) error) (http.Handler, func(int)) {
	size, err := strconv.Atoi(os.Getenv(roomSize))
	check(err)
	var opened atomic.Int64
	return serveOptions(&router.Options{
		Broker: redis.NewBroker(goredis.NewClient(&goredis.Options{Addr: os.Getenv(redisAddr)})),
		OnOpen: func(_ context.Context, c *router.Conn) error {
			check(c.Subscribe("all"))
			return enter(c, "room/"+strconv.Itoa(int(opened.Add(1)-1)/size))
		},
	})
}

// serveSessions serves connections that subscribe to one topic and can have sessions.
func serveSessions() (http.Handler, func(int)) {
	return serveOptions(&router.Options{
		Broker: redis.NewBroker(goredis.NewClient(&goredis.Options{Addr: os.Getenv(redisAddr)})),
		Resume: router.ResumeOptions{Within: 2 * time.Minute},
		OnOpen: func(_ context.Context, c *router.Conn) error { return c.Subscribe("all") },
	})
}

// serveOptions serves a router that answers one type of request.
func serveOptions(opts *router.Options) (http.Handler, func(int)) {
	queue := opts.Limits.QueueMessages
	opts.Limits = manyFromOneAddress()
	opts.Limits.QueueMessages = queue
	r := router.New(opts)
	router.RPC(r, func(_ *router.Context, m Say) (Said, error) { return said(m), nil })
	return r, func(int) {}
}

// greet returns a request for a session.
func greet(int) string {
	return `{"type":"$ws:hello","meta":{"correlationId":"hello"},"payload":{"session":true}}`
}
