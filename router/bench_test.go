package router_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// benchmark sends messages over a socket one at a time and waits for each
// answer. The results include the client.
func benchmark(b *testing.B, policy limit.Policy, text string) {
	r := router.New(nil)
	r.UseIngress(ratelimit.New(memory.NewLimiter(policy), nil))
	router.RPC(r, echo)
	server := httptest.NewServer(r)
	defer server.Close()
	ws, _, err := websocket.Dial(b.Context(), server.URL, nil)
	require.NoError(b, err)
	defer ws.CloseNow()
	message := []byte(text)
	b.ReportAllocs()
	for b.Loop() {
		if err := ws.Write(context.Background(), websocket.MessageText, message); err != nil {
			b.Fatal(err)
		}
		_, r, err := ws.Reader(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if err := discard(r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMessage measures a call that passes all seven stages.
func BenchmarkMessage(b *testing.B) {
	benchmark(b, limit.PerSecond(1_000_000), `{"type":"ECHO","meta":{"timestamp":1730000000000,"correlationId":"b7c1"},"payload":{"n":7}}`)
}

// BenchmarkRejected measures small and large messages that a rate limit rejects
// before their payload is read.
func BenchmarkRejected(b *testing.B) {
	for name, pad := range map[string]int{"200B": 100, "16kB": 16_000} {
		b.Run(name, func(b *testing.B) {
			benchmark(b, limit.PerHour(1), `{"type":"ECHO","meta":{"timestamp":1730000000000,"correlationId":"b7c1"},"payload":{"n":7,"pad":"`+strings.Repeat("x", pad)+`"}}`)
		})
	}
}
