//go:build !js

package client_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/router"
)

// BenchmarkCall makes calls to a server in the same process, 16 at a time on one connection.
func BenchmarkCall(b *testing.B) {
	r := router.New(&router.Options{Logger: slog.New(slog.DiscardHandler), Limits: manyMessages()})
	router.RPC(r, func(_ *router.Context, m add) (sum, error) { return sum{m.A + m.B}, nil })
	web := httptest.NewServer(r)
	defer web.Close()
	c := client.New(strings.Replace(web.URL, "http", "ws", 1), nil)
	defer func() { _ = c.Close(context.Background()) }()
	if err := c.Connect(context.Background()); err != nil {
		b.Fatal(err)
	}
	var failed atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(8)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := client.Call[sum](context.Background(), c, add{1, 2}); err != nil {
				failed.Add(1)
			}
		}
	})
	if failed.Load() > 0 {
		b.Fatalf("%d calls failed", failed.Load())
	}
}

// manyMessages returns rates that are checked like the default ones, and that a benchmark does not reach.
func manyMessages() router.Limits {
	rate := router.Rate{PerSecond: 1_000_000_000, Burst: 1_000_000_000}
	return router.Limits{MessagesPerConn: rate, MessagesPerIP: rate}
}
