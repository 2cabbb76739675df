package otel_test

import (
	"context"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/penstock-go/penstock/otel"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/tracing"
)

// BenchmarkCall measures a call over a socket, its client included: without a tracer, with one whose
// sampler drops each span, and with one that records them. The client sends a trace context or none.
func BenchmarkCall(b *testing.B) {
	tracer := func(sampler sdktrace.Sampler) tracing.Tracer {
		provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithBatcher(discard{}))
		b.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
		return otel.NewTracer(&otel.Options{TracerProvider: provider})
	}
	for _, bb := range []struct {
		name, meta string
		tracer     tracing.Tracer
	}{
		{"no tracer", "", nil},
		{"no tracer, trace context", traceMeta, nil},
		{"not sampled", "", tracer(sdktrace.NeverSample())},
		{"1% sampled", "", tracer(sdktrace.TraceIDRatioBased(0.01))},
		{"sampled", "", tracer(sdktrace.AlwaysSample())},
		{"sampled, link", traceMeta, tracer(sdktrace.AlwaysSample())},
	} {
		b.Run(bb.name, func(b *testing.B) { benchmarkCall(b, bb.tracer, bb.meta) })
	}
}

const traceMeta = `,"traceparent":"00-` + clientTrace + `-` + clientSpan + `-01"`

func benchmarkCall(b *testing.B, tracer tracing.Tracer, meta string) {
	unlimited := router.Rate{PerSecond: 1_000_000_000, Burst: 1_000_000_000}
	r := newRouter(router.Options{Tracer: tracer, Limits: router.Limits{MessagesPerConn: unlimited, MessagesPerIP: unlimited}})
	server := httptest.NewServer(r)
	defer server.Close()
	ws, _, err := websocket.Dial(b.Context(), strings.Replace(server.URL, "http", "ws", 1), nil)
	require.NoError(b, err)
	defer func() { _ = ws.CloseNow() }()
	message := []byte(`{"type":"WORK","meta":{"correlationId":"b7c1"` + meta + `},"payload":{"do":""}}`)
	buffer := make([]byte, 1024)
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, ws.Write(context.Background(), websocket.MessageText, message))
		_, answer, err := ws.Reader(context.Background())
		require.NoError(b, err)
		n, err := io.ReadFull(answer, buffer)
		require.ErrorIs(b, err, io.ErrUnexpectedEOF)
		require.NotContains(b, string(buffer[:n]), "ERROR")
	}
}

// A discard exports spans nowhere.
type discard struct{}

func (discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                             { return nil }
