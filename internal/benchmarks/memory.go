package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/router"
)

const (
	memoryConns = 4000
	manyTopics  = 10
	queuedConns = 200
	queueLength = 1000
)

// memoryPerConn measures what an idle connection of one node takes in addition to itself.
func memoryPerConn(cfg config) {
	const heap = "heap"
	title := fmt.Sprintf("%d idle connections of a node without a broker: bytes per connection", memoryConns)
	results := newTable(title, "%.1f", "RSS", heap, "goroutines").named("memory")
	add := func(row, v string, how setup) {
		before, after := openIdle(variant(v), memoryConns, how)
		results.add(row, "RSS", float64(after.RSS-before.RSS)/memoryConns)
		results.add(row, heap, (float64(after.Heap)-float64(before.Heap))/memoryConns)
		results.add(row, "goroutines", float64(after.Goroutines-before.Goroutines)/memoryConns)
	}
	for range cfg.passes {
		for _, v := range []string{"no topic", "one room", "ten topics", "own topic", "history", "member in memory", "no session in memory", "session in memory"} {
			add(v, v, setup{})
		}
		add("wrapped", "no topic", setup{env: []string{wrapsConns + "=1"}})
	}
	results.print()
	results.printDifference("one room", "no topic", 1, heap)
	results.printDifference("ten topics", "no topic", manyTopics, heap)
	results.printDifference("own topic", "no topic", 1, heap)
	results.printDifference("history", "no topic", 1, heap)
	results.printDifference("member in memory", "one room", 1, heap)
	results.printDifference("session in memory", "no session in memory", 1, heap)
	memoryOfQueues(cfg)
}

// memoryOfQueues measures what a message takes that waits for a client.
func memoryOfQueues(cfg config) {
	const heap = "heap"
	title := fmt.Sprintf("%d connections that read nothing, with %d messages of 200 bytes in each send queue: bytes per message", queuedConns, queueLength)
	queues := newTable(title, "%.1f", heap).named("queues")
	for range cfg.passes {
		for _, v := range []string{"publication", "message"} {
			queues.add(v, heap, fillQueues(variant(v))/(queuedConns*queueLength))
		}
	}
	queues.print()
}

// fillQueues returns the bytes that full send queues take.
func fillQueues(c contender) float64 {
	p := start(c, setup{})
	defer p.stop()
	clients := openConns(queuedConns, func() *client { return exchange(p, c) })
	defer closeAll(clients)
	before := p.command("collect")
	p.command("publish 0")
	after := p.command("collect")
	return float64(after.Heap) - float64(before.Heap)
}

// serveTopics serves connections that subscribe to topics, whose names it computes from the number
// of the connection, and to no other.
func serveTopics(topics func(n int64) []string, opts ...router.SubscribeOption) (http.Handler, func(int)) {
	var opened atomic.Int64
	return serveOptions(&router.Options{OnOpen: func(_ context.Context, c *router.Conn) error {
		for _, topic := range topics(opened.Add(1) - 1) {
			check(c.Subscribe(topic, opts...))
		}
		return nil
	}})
}

func room(n int64) []string { return []string{"room/" + strconv.FormatInt(n/roomMembers, 10)} }

func serveHistory() (http.Handler, func(int)) {
	handler, publish := serveTopics(func(int64) []string { return []string{"history"} })
	router.Topic(handler.(*router.Router), "history", &router.TopicOptions{History: router.History{Messages: 100}})
	return handler, publish
}

// serveSessionsInMemory serves connections that can have sessions, whose records are in this process.
func serveSessionsInMemory() (http.Handler, func(int)) {
	return serveOptions(&router.Options{
		Resume: router.ResumeOptions{Within: time.Hour},
		OnOpen: func(_ context.Context, c *router.Conn) error { return c.Subscribe("all") },
	})
}

// serveQueues serves connections whose send queues are filled when it is to publish.
func serveQueues(fill func(r *router.Router, conns []*router.Conn)) (http.Handler, func(int)) {
	var mu sync.Mutex
	var conns []*router.Conn
	opts := &router.Options{
		SlowConsumer:    router.DropNewest,
		Limits:          router.Limits{QueueMessages: queueLength},
		Timeouts:        router.Timeouts{Message: time.Hour, Ping: time.Hour},
		OnLimitExceeded: func(router.LimitExceeded) {},
		OnOpen: func(_ context.Context, c *router.Conn) error {
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, c)
			return c.Subscribe("all")
		},
	}
	handler, _ := serveOptions(opts)
	r := handler.(*router.Router)
	return r, func(int) {
		for r.Stats().QueuedMessages < queuedConns*queueLength {
			fill(r, conns)
		}
	}
}

var memoryVariants = []contender{
	{name: "no topic", request: say, serve: func() (http.Handler, func(int)) {
		return serveTopics(func(int64) []string { return nil })
	}},
	{name: "one room", request: say, serve: func() (http.Handler, func(int)) { return serveTopics(room) }},
	{name: "ten topics", request: say, serve: func() (http.Handler, func(int)) {
		return serveTopics(func(int64) (topics []string) {
			for i := range manyTopics {
				topics = append(topics, "topic/"+strconv.Itoa(i))
			}
			return topics
		})
	}},
	{name: "own topic", request: say, serve: func() (http.Handler, func(int)) {
		return serveTopics(func(n int64) []string { return []string{"user/" + strconv.FormatInt(n, 10)} })
	}},
	{name: "history", request: say, serve: serveHistory},
	{name: "member in memory", request: say, serve: func() (http.Handler, func(int)) { return serveTopics(room, router.Present("Ann")) }},
	{name: "no session in memory", request: say, serve: serveSessionsInMemory},
	{name: "session in memory", request: greet, serve: serveSessionsInMemory},
	{name: "publication", request: say, serve: func() (http.Handler, func(int)) {
		return serveQueues(func(r *router.Router, _ []*router.Conn) { check(r.Publish("all", queuedMessage)) })
	}},
	{name: "message", request: say, serve: func() (http.Handler, func(int)) {
		return serveQueues(func(_ *router.Router, conns []*router.Conn) {
			for _, c := range conns {
				_ = c.Send(queuedMessage) // a queue that is full refuses it
			}
		})
	}},
}

// queuedMessage takes about 200 bytes as a frame.
var queuedMessage = said(Say{Room: "general", Text: "The quick brown fox jumps over the lazy dog, and the dog does not even look up. Not once.", N: 1234567})
