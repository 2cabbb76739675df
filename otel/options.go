package otel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/tracing"
)

// Options configure a [Tracer]. The zero value is a working configuration.
type Options struct {
	// TracerProvider makes the spans. The default is the global one of
	// go.opentelemetry.io/otel, which need not be set before NewTracer.
	TracerProvider trace.TracerProvider

	// MeterProvider records the histogram rpc.server.call.duration, in seconds, by message type
	// and code. If nil, it is not recorded: package middleware/metrics has metrics for
	// Prometheus.
	MeterProvider metric.MeterProvider

	// Trust says what the trace context that a client sends is used for. The default is Link.
	Trust Trust

	// Attributes returns further attributes of a span that is recorded, such as enduser.id.
	// They may have personal data, so there are none by default. It is called concurrently for
	// operations of each kind.
	Attributes func(context.Context, tracing.Operation) []attribute.KeyValue

	// Codes are error codes of the application for the attributes error.type and
	// rpc.response.status_code. Other codes that package errors does not define are _OTHER: a
	// handler may return the error of another client.
	Codes []errors.Code
}

// Trust says what the trace context that a client sends is used for.
type Trust int

// The values of Trust.
const (
	// Link starts a new trace for each message, which has a link to the client's span. Clients
	// choose the bytes of a trace context, so they must decide neither about sampling nor about
	// which trace a message belongs to.
	Link Trust = iota

	// Parent continues the trace of the client, and samples as it says, if the sampler is a
	// ParentBased one. It is for clients that are services of one's own.
	Parent

	// Ignore starts a new trace without a link.
	Ignore
)

// check panics if an option is invalid.
func (o *Options) check() {
	if o.Trust < Link || o.Trust > Ignore {
		panic(fmt.Sprintf("otel: Options.Trust is %d; it must be Link, Parent or Ignore", o.Trust))
	}
}
