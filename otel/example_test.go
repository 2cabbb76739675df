package otel_test

import (
	"context"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/otel"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// An Order is a call.
type Order struct {
	Item string `json:"item"`
}

func (Order) MessageType() string { return "ORDER" }

// An Ordered answers an Order.
type Ordered struct{}

func (Ordered) MessageType() string { return "ORDERED" }

// This example traces a call, what its handler asks a database, and what it publishes.
func ExampleNewTracer() {
	spans := tracetest.NewInMemoryExporter() // in production, an exporter for OTLP
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	database := provider.Tracer("database")

	r := router.New(&router.Options{Tracer: otel.NewTracer(&otel.Options{TracerProvider: provider})})
	router.Topic(r, "orders/{item}", nil)
	router.RPC(r, func(ctx *router.Context, m Order) (Ordered, error) {
		_, span := database.Start(ctx, "INSERT orders")
		span.End()
		if m.Item == "" {
			return Ordered{}, errors.Errorf(errors.InvalidArgument, "item must not be empty")
		}
		return Ordered{}, ctx.Publish("orders/"+m.Item, m)
	})

	client := routertest.Dial(exampleT{}, r)
	routertest.Call[Ordered](client, Order{Item: "tea"})
	fmt.Println(routertest.CallError(client, Order{}).Code)
	_ = r.Shutdown(context.Background())

	for _, span := range spans.GetSpans() {
		failed := span.Status.Code == codes.Error
		fmt.Printf("%-8v %-21s child=%-5v failed=%v\n", span.SpanKind, span.Name, span.Parent.IsValid(), failed)
	}
	// Output:
	// INVALID_ARGUMENT
	// internal INSERT orders         child=true  failed=false
	// producer publish orders/{item} child=true  failed=false
	// server   ORDER                 child=false failed=false
	// internal INSERT orders         child=true  failed=false
	// server   ORDER                 child=false failed=false
}

// exampleT stands for the test of a client.
type exampleT struct{ testing.TB }

func (exampleT) Helper()        {}
func (exampleT) Cleanup(func()) {}
