package metrics_test

import (
	"context"
	"io"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/metrics"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// BenchmarkScrape measures a scrape of a router with 10,000 connections.
func BenchmarkScrape(b *testing.B) {
	r, reg := newRouter(router.Options{})
	for range 10_000 {
		routertest.Dial(b, r)
	}
	for b.Loop() {
		_, err := reg.Gather()
		require.NoError(b, err)
	}
}

// BenchmarkMessage measures a rate-limited call over a socket, without and with metrics. The
// results include the client.
func BenchmarkMessage(b *testing.B) {
	for _, name := range []string{"without", "with"} {
		b.Run(name, func(b *testing.B) {
			rate := router.Rate{PerSecond: 1_000_000_000, Burst: 1_000_000_000}
			r, opts := router.New(&router.Options{Limits: router.Limits{MessagesPerConn: rate, MessagesPerIP: rate}}), ratelimit.Options{Name: "chat"}
			if name == "with" {
				m := metrics.New(prometheus.NewRegistry(), nil)
				m.Router(r)
				opts.Observe = m.Limit
			}
			r.UseIngress(ratelimit.New(memory.NewLimiter(limit.PerSecond(1_000_000)), &opts))
			router.RPC(r, echo)
			server := httptest.NewServer(r)
			defer server.Close()
			ws, _, err := websocket.Dial(b.Context(), server.URL, nil)
			require.NoError(b, err)
			defer ws.CloseNow()
			call := []byte(`{"type":"ECHO","meta":{"timestamp":1730000000000,"correlationId":"b7c1"},"payload":{"n":7}}`)
			b.ReportAllocs()
			for b.Loop() {
				if err := ws.Write(context.Background(), websocket.MessageText, call); err != nil {
					b.Fatal(err)
				}
				_, reply, err := ws.Reader(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, reply); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
