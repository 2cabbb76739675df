package router_test

import (
	"context"
	"fmt"
	"iter"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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
	r := router.New(&router.Options{Limits: rarelyReached()})
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

// An Update is an item of a stream, or an event.
type Update struct {
	N    int    `json:"n"`
	Text string `json:"text"`
}

func (Update) MessageType() string { return "UPDATE" }

// benchmarkItems measures a handler of Count that sends b.N updates to a client that reads them as
// fast as it can.
func benchmarkItems(b *testing.B, register func(*router.Router)) {
	r := router.New(&router.Options{Limits: rarelyReached(), Timeouts: router.Timeouts{Call: time.Hour}})
	register(r)
	server := httptest.NewServer(r)
	defer server.Close()
	client := dialStream(b, server)
	b.ReportAllocs()
	b.ResetTimer()
	require.NoError(b, client.send(fmt.Sprintf(`{"type":"COUNT","meta":{"correlationId":"b7c1"},"payload":{"to":%d}}`, b.N)))
	for range b.N + 1 {
		if _, err := client.next(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
}

// streamUpdates registers a stream of updates.
func streamUpdates(r *router.Router) {
	router.Stream(r, func(_ *router.Context, m Count) iter.Seq2[Update, error] {
		return func(yield func(Update, error) bool) {
			for n := 0; n < m.To && yield(Update{n, "some text"}, nil); n++ {
				continue
			}
		}
	})
}

// sendUpdates registers a call that sends updates as events.
func sendUpdates(r *router.Router) {
	router.RPC(r, func(ctx *router.Context, m Count) (Counted, error) {
		for n := range m.To {
			if err := ctx.SendWait(Update{n, "some text"}); err != nil {
				return Counted{}, err
			}
		}
		return Counted{}, nil
	})
}

// BenchmarkStream measures the items of a stream.
func BenchmarkStream(b *testing.B) { benchmarkItems(b, streamUpdates) }

// BenchmarkSendWait measures events, for comparison.
func BenchmarkSendWait(b *testing.B) { benchmarkItems(b, sendUpdates) }
