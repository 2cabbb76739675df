package main

import (
	"context"
	"os"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/penstock-go/penstock/otel"
	"github.com/penstock-go/penstock/tracing"
)

// newTracer sends spans to the collector at OTEL_EXPORTER_OTLP_ENDPOINT, under the name OTEL_SERVICE_NAME. Without an
// endpoint, the tracer is nil. flush sends the spans that wait, for up to five seconds.
func newTracer(ctx context.Context) (tracer tracing.Tracer, flush func() error, err error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
		return nil, func() error { return nil }, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter)) // OTEL_TRACES_SAMPLER has the sampler
	flush = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return provider.Shutdown(ctx)
	}
	return otel.NewTracer(&otel.Options{TracerProvider: provider}), flush, nil
}
