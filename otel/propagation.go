package otel

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/penstock-go/penstock/tracing"
)

// Inject returns the trace context of the span in ctx, for InjectTrace of package client's Options.
// It has no baggage. A state that is longer than tracing.MaxStateBytes is left out.
func Inject(ctx context.Context) tracing.TraceContext {
	var c carrier
	propagation.TraceContext{}.Inject(ctx, &c)
	if len(c.State) > tracing.MaxStateBytes {
		c.State = ""
	}
	return tracing.TraceContext(c)
}

// Extract returns ctx with the span of a trace context as the remote parent, for ExtractTrace of
// package client's Options. If it is invalid, Extract returns ctx.
func Extract(ctx context.Context, t tracing.TraceContext) context.Context {
	return propagation.TraceContext{}.Extract(ctx, (*carrier)(&t))
}

// spanContext returns the span of a trace context, which is not valid if that is not, or is to be
// ignored.
func spanContext(t tracing.TraceContext, ignore bool) trace.SpanContext {
	if t.Parent == "" || ignore {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(Extract(context.Background(), t))
}

// A carrier is a trace context as a propagation.TextMapCarrier.
type carrier tracing.TraceContext

// Get returns the value of a header, or "".
func (c *carrier) Get(key string) string {
	switch key {
	case "traceparent":
		return c.Parent
	case "tracestate":
		return c.State
	default:
		return ""
	}
}

// Set sets a header. Others than those of a trace context are ignored.
func (c *carrier) Set(key, value string) {
	switch key {
	case "traceparent":
		c.Parent = value
	case "tracestate":
		c.State = value
	}
}

// Keys returns the headers that Get returns.
func (*carrier) Keys() []string { return []string{"traceparent", "tracestate"} }
